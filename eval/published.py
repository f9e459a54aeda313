"""What a benchmark's own scorer and its paper say, how that is laid out, and which benchmark has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eval.run import LoadedRun
from eval.schema import PublishedReport, PublishedRow
from eval.sgmri.marks import TextMarks


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a published table.

    Attributes:
        name: Its number's name in the report's part and in the published rows.
        head: What stands above it.
        help: One line on what it means.
    """

    name: str
    head: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """How a table of the published profile is laid out.

    Attributes:
        title: Its caption.
        part: Key of its numbers in `PublishedReport.report`, and `task` of its rows in `EvalResult.published_rows`.
        columns: As in the paper, in percent with two decimals. Empty: the usual columns of tasks with classes and
            boxes, as fractions, which terminal and page have in an order of their own.
        note: What a reader must know of the columns.
    """

    title: str
    part: str
    columns: tuple[Column, ...] = ()
    note: str = ""


class PublishedScorer(Protocol):
    """The published profile of a benchmark."""

    @property
    def failed(self) -> str:
        """What the published scorer makes of records that failed on our side, as a clause."""
        ...

    def tables(self, tasks: Sequence[str]) -> list[PublishedTable]:
        """The tables that a dataset with these tasks fills."""
        ...

    def rows(self) -> list[PublishedRow]:
        """The paper's rows, not run here."""
        ...

    def is_official(self, run: LoadedRun) -> bool:
        """Whether a run answers the whole of the official test split, told by its counts."""
        ...

    def notes(self, runs: Sequence[LoadedRun], marks: Mapping[str, Mapping[str, TextMarks]]) -> list[str]:
        """What a reader must know to compare with the paper.

        Args:
            runs: The runs that were scored by the published scorer.
            marks: Name of a run -> record id -> what judge and BERTScore said.
        """
        ...

    def score(self, run: LoadedRun, marks: Mapping[str, TextMarks]) -> PublishedReport:
        """Runs the published scorer; an exception of it becomes `stops`.

        Args:
            run: The run.
            marks: Record id -> what judge and BERTScore said, where a benchmark asks them.

        Raises:
            DataError: A record that has no official form.
        """
        ...


def get_published(benchmark: str) -> PublishedScorer | None:
    """The published profile of a benchmark; `None` if it has none here."""
    if benchmark == "scintiground":
        from eval.published_scintiground import ScintiGroundPublished

        return ScintiGroundPublished()
    if benchmark == "sgmri":
        from eval.published_sgmri import SgmriPublished

        return SgmriPublished()
    return None


def failed_records(benchmark: str) -> str:
    """What becomes of records that failed on our side, as a sentence without its capital and full stop."""
    published = get_published(benchmark)
    failed = "the published scorer reads them as empty texts" if published is None else published.failed
    return f"corrected scores leave them out, {failed}"
