"""Marks of every localization and captioning answer of some runs: what a judge and BERTScore say of its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from benchmarks.sgmri import BOX_TASKS, level_and_task
from collators.codecs.sgmri_official import official_output
from eval.corrected_sgmri.texts import ar_texts
from eval.run import LoadedRun
from eval.sgmri import text as published
from eval.sgmri.answers import without_thinking
from eval.sgmri.bertscore import BertScore
from eval.sgmri.judge import Judge
from eval.sgmri.mark_cache import Mark, MarkCache, open_cache, read_marks
from eval.sgmri.marks import TextMarks

# Candidate and reference.
Pair = tuple[str, str]
# Record id -> the texts that a profile compares.
Texts = Mapping[str, Pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Who is asked; a part that is `None` is left out."""

    judge: Judge | None = None
    bertscore: BertScore | None = None

    def notes(self) -> list[str]:
        """What a reader of the scores must know."""
        names = [f"judge {self.judge.name}"] if self.judge is not None else []
        names += [self.bertscore.name] if self.bertscore is not None else []
        return [f"the AR-Score has {' and '.join(names)}"] if names else []


def mark_runs(
    runs: Sequence[LoadedRun], marker: Marker, profiles: Sequence[str] = ("corrected",)
) -> dict[str, dict[str, TextMarks]]:
    """Marks of the runs, in part from their caches.

    Args:
        runs: Runs on SGMRI-VQA.
        marker: Who is asked.
        profiles: Whose texts are marked.

    Returns:
        Name of a run -> record id -> marks, of every localization and captioning record; of those that failed on our
        side for the published profile only, which scores the text [ERROR: ...].

    Raises:
        UserError: A judge or BERTScore cannot be used.
        DataError: A cache is broken or is being written by another process.
    """
    known: dict[str, Mark] = {}
    for run in runs:
        known.update(read_marks(run.folder))
    result = {}
    for run in runs:
        marks: dict[str, TextMarks] = {}
        with open_cache(run.folder, known) as cache:
            if "published" in profiles:
                marks = _add_published(marks, published_texts(run), marker, cache)
            if "corrected" in profiles:
                marks = _add_corrected(marks, corrected_texts(run), marker, cache)
        result[run.name] = marks
    return result


def corrected_texts(run: LoadedRun) -> Texts:
    """The texts that the corrected profile compares; empty where an answer has none."""
    return {
        record.id: ar_texts(record, prediction.answer)
        for record, prediction in zip(run.records, run.predictions, strict=True)
        if prediction.error is None and level_and_task(record)[1] in BOX_TASKS
    }


def published_texts(run: LoadedRun) -> Texts:
    """The texts that the published scorer compares; the candidate is empty where an answer has none."""
    return {
        record.id: published.ar_texts(
            without_thinking(official_output(record, prediction, run.manifest.codec)),
            record.target.text or "",
            level_and_task(record)[1],
        )
        for record, prediction in zip(run.records, run.predictions, strict=True)
        if level_and_task(record)[1] in BOX_TASKS
    }


def _add_corrected(marks: dict[str, TextMarks], texts: Texts, marker: Marker, cache: MarkCache) -> dict[str, TextMarks]:
    replies, values = _ask([pair for pair in texts.values() if all(pair)], marker, cache)
    return marks | {
        key: msgspec.structs.replace(
            marks.get(key, TextMarks()),
            corrected_judge_reply=None if marker.judge is None else replies.get(pair, ""),
            corrected_bertscore_f1=None if marker.bertscore is None else values.get(pair, 0.0),
        )
        for key, pair in texts.items()
    }


def _add_published(marks: dict[str, TextMarks], texts: Texts, marker: Marker, cache: MarkCache) -> dict[str, TextMarks]:
    """Of each reference compared with itself too, by which the published scorer divides."""
    asked = [pair for pair in texts.values() if pair[0]]
    replies, values = _ask(asked, marker, cache)
    own = (
        {} if marker.judge is None else marker.judge.replies([(reference, reference) for _, reference in asked], cache)
    )
    return marks | {
        key: msgspec.structs.replace(
            marks.get(key, TextMarks()),
            judge_reply=None if marker.judge is None else replies.get(pair, ""),
            judge_reply_on_reference=None if marker.judge is None else own.get((pair[1], pair[1]), ""),
            bertscore_f1=None if marker.bertscore is None else values.get(pair, 0.0),
        )
        for key, pair in texts.items()
    }


def _ask(pairs: Sequence[Pair], marker: Marker, cache: MarkCache) -> tuple[dict[Pair, str], dict[Pair, float]]:
    """Replies and BERTScores of the pairs; empty where nobody is asked."""
    replies = {} if marker.judge is None else marker.judge.replies(pairs, cache)
    return replies, {} if marker.bertscore is None else marker.bertscore.f1(pairs, cache)
