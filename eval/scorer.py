"""What a scorer is, and which one a benchmark has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.predictions import Prediction
from benchmarks.schema import Record
from collators.codecs.base import Codec
from eval.schema import Fault
from eval.schema_scores import RowResult
from eval.sgmri.marks import TextMarks


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows:
    """Rows in record order, scored as they are and after extraction-tolerant reading."""

    strict: tuple[RowResult, ...]
    tolerant: tuple[RowResult, ...]


class Scorer(Protocol):
    """The corrected profile of a benchmark."""

    @property
    def accuracy(self) -> str:
        """Name of the share of right answers."""
        ...

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What it mends of the benchmark's published scorer."""
        ...

    def score(
        self,
        records: Sequence[Record],
        predictions: Sequence[Prediction],
        codec: Codec,
        *,
        marks: Mapping[str, TextMarks] | None = None,
    ) -> ScoredRows:
        """Scores predictions that are in the order of the records.

        Args:
            records: The records.
            predictions: Their predictions.
            codec: The codec that read them.
            marks: Record id -> what a judge and BERTScore said of it, where the benchmark uses them.

        Raises:
            DataError: A record that the benchmark does not allow.
        """
        ...

    def labels(self, task: str, records: Sequence[Record]) -> tuple[str, ...]:
        """Classes of a task; empty if it has none."""
        ...

    def pair(self, labels: tuple[str, ...]) -> tuple[str, str] | None:
        """The positive and the negative class of a task with these classes; `None` if it does not have such two."""
        ...

    def class_name(self, text: str) -> str:
        """A class, however an output spells it, as `labels` spells it."""
        ...

    def label(self, record: Record) -> str | None:
        """The record's class, spelled as in `labels`."""
        ...

    def strata(self, records: Sequence[Record]) -> tuple[str, ...]:
        """Strata to report."""
        ...


def get_scorer(benchmark: str) -> Scorer:
    """The scorer of a benchmark; one without its own gets the generic scorer."""
    if benchmark == "scintiground":
        from eval.corrected.scorer import ScintiGroundScorer

        return ScintiGroundScorer()
    if benchmark == "sgmri":
        from eval.corrected_sgmri.scorer import SgmriScorer

        return SgmriScorer()
    from eval.generic import GenericScorer

    return GenericScorer()
