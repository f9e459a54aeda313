"""The AR-Score of one record, and its parts apart: BLEU-4, ROUGE-L, BERTScore, judge.

Compared are the answer and the target's answer, without reasoning, boxes and frame numbers: places are scored as boxes.
Weights as published (sgmri.md, section 8): the judge has .4, the text metrics share .6 equally, and without a judge they
are averaged. A part is used for a whole run or not at all; a record that lacks one in a run that has it has no AR-Score.

A reference of fewer than four words is compared by the n-grams it has, since else it would differ from itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from benchmarks.schema import Answer, Record
from eval.corrected_sgmri.places import without_places
from eval.sgmri.marks import TextMarks

JUDGE_WEIGHT = 0.4
# A reply to the judge's question: three marks, whatever stands around them.
_MARK = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Which parts a run has beside BLEU-4 and ROUGE-L."""

    judge: bool = False
    bertscore: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextValues:
    """Metrics of one answer text, and the parts that should be there and are not (`judge`, `bertscore`)."""

    values: dict[str, float]
    missing: tuple[str, ...] = ()


def ar_texts(record: Record, answer: Answer | None) -> tuple[str, str]:
    """Candidate and reference, as they are compared; empty where there is no text."""
    candidate = answer.text if answer is not None else None
    return without_places(candidate or ""), without_places(record.target.text or "")


def parts_of(marks: dict[str, TextMarks]) -> Parts:
    """The parts that a run's marks hold."""
    return Parts(
        judge=any(mark.corrected_judge_reply is not None for mark in marks.values()),
        bertscore=any(mark.corrected_bertscore_f1 is not None for mark in marks.values()),
    )


def text_values(candidate: str, reference: str, mark: TextMarks | None, parts: Parts) -> TextValues:
    """All text metrics of a candidate, each in [0, 1]; an empty one has 0 in every part that the run has.

    Args:
        candidate: From `ar_texts`.
        reference: From `ar_texts`; not empty.
        mark: What the judge and BERTScore said of the two.
        parts: Which parts the run has.
    """
    found: dict[str, float | None] = {"bleu4": bleu4(candidate, reference), "rouge_l": rouge_l(candidate, reference)}
    if parts.bertscore:
        value = mark.corrected_bertscore_f1 if mark is not None else None
        # Rescaled values may lie below 0, as bad as no answer.
        found["bertscore"] = 0.0 if not candidate else None if value is None else min(1.0, max(0.0, value))
    if parts.judge:
        reply = mark.corrected_judge_reply if mark is not None else None
        found["judge"] = 0.0 if not candidate else judge_mark(reply)
    values = {name: value for name, value in found.items() if value is not None}
    missing = tuple(name for name in found if name not in values)
    return TextValues(values=values if missing else values | {"ar_score": _mean(values)}, missing=missing)


def _mean(values: dict[str, float]) -> float:
    texts = [value for name, value in values.items() if name != "judge"]
    mean = sum(texts) / len(texts)
    return JUDGE_WEIGHT * values["judge"] + (1 - JUDGE_WEIGHT) * mean if "judge" in values else mean


def judge_mark(reply: str | None) -> float | None:
    """Mean of three marks from 1 to 10, as a fraction; `None` if the reply is anything else."""
    marks = [float(text) for text in _MARK.findall(reply or "")]
    if len(marks) != 3 or not all(1 <= value <= 10 for value in marks):
        return None
    return sum(marks) / 30


def bleu4(candidate: str, reference: str) -> float:
    """Sentence BLEU up to 4-grams, smoothing method 1, in lower case, words split at blanks."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    given, wanted = candidate.lower().split(), reference.lower().split()
    order = min(4, len(wanted))
    if not given or not order:
        return 0.0
    smoothing = SmoothingFunction().method1
    return float(sentence_bleu([wanted], given, weights=(1 / order,) * order, smoothing_function=smoothing))


def rouge_l(candidate: str, reference: str) -> float:
    """F1 of the longest common subsequence of stemmed words."""
    from rouge_score.rouge_scorer import RougeScorer

    return float(RougeScorer(["rougeL"], use_stemmer=True).score(reference, candidate)["rougeL"].fmeasure)
