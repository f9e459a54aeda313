"""The published AR-Score: a judge's marks, BERTScore, BLEU-4 and ROUGE-L between an answer and the reference.

Source: sgmri.md section 8; checked against the authors' scorer (github.com/lamawmouk/SGMRIQA, commit a77adeb).
BLEU comes from nltk, ROUGE from rouge_score; what the judge and BERTScore said is given (`TextMarks`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from eval.sgmri.marks import TextMarks

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

JUDGE_WEIGHT: Final = 0.4
_NO_MARKS: Final = TextMarks()

# A run of frame numbers; "and" is no part of it, so the last frame of a list stays behind.
_FRAMES: Final = r"\s+on\s+Frames?\s+[\d\-–,\s]+"
# What goes, in this order, and what takes its place.
_STRIPPED: Final = (
    # Kept fault: `<bbx>` with integers only; decimals, other tags and other forms of boxes stay.
    (re.compile(r"<bbx>\[[\d,\s]+\]</bbx>"), ""),
    (re.compile(r"\[\d+(?:,\s*\d+){3}\]"), ""),
    # Kept fault: "frame" in lower case stays; so do "in Frame 3" and "Slice 3".
    (re.compile(_FRAMES + r"(?::\s*)?"), " "),
    (re.compile(r"Frame\s+\d+:\s*"), ""),
    # Hardly ever reached: the third step has taken the frames, unless the fourth has joined these words just now.
    (re.compile(r"(?:observed|appears|seen)" + _FRAMES + r"(?:and\s+\d+)?"), ""),
    # What is left of the punctuation around them.
    (re.compile(r"\s*,\s*(?:and\s+)?\."), "."),
    (re.compile(r",(?:\s*,)+"), ","),
    (re.compile(r",\s*\."), "."),
    (re.compile(r"\s{2,}"), " "),
    (re.compile(r"\s+\."), "."),
)


class ARScore(NamedTuple):
    """AR-Score of one answer; parts that were not computed are `None`.

    Attributes:
        value: The weighted mean of the parts; below 0 if BERTScore is.
        judge: Mark of the judge in tenths, over its mark for the reference itself.
        bertscore_f1: BERTScore F1, rescaled.
        bleu4: Sentence BLEU-4.
        rouge_l: F1 of ROUGE-L.
    """

    value: float
    judge: float | None = None
    bertscore_f1: float | None = None
    bleu4: float | None = None
    rouge_l: float | None = None


def strip_boxes(text: str) -> str:
    """The text without boxes and frames, as far as the published scorer knows them."""
    for pattern, instead in _STRIPPED:
        text = pattern.sub(instead, text)
    return text.strip().rstrip(",. ")


def ar_texts(prediction: str, answer: str, task: str) -> tuple[str, str]:
    """The two texts that are compared: candidate and reference.

    Args:
        prediction: The answer without thinking, not cut.
        answer: The official answer. Kept fault: the official reasoning is no part of the reference.
        task: Official task; boxes are stripped for localization only.
    """
    if task == "localization":
        prediction, answer = strip_boxes(prediction), strip_boxes(answer)
    return prediction.strip(), answer.strip()


def score_texts(candidate: str, reference: str, marks: TextMarks = _NO_MARKS) -> ARScore:
    """Scores a candidate against its reference; an empty candidate earns 0 and has no parts."""
    if not candidate:
        return ARScore(0.0)
    judge = judge_mark(marks)
    bleu, rouge = bleu4(candidate, reference), rouge_l(candidate, reference)
    metrics = [value for value in (marks.bertscore_f1, bleu, rouge) if value is not None]
    share = (1.0 if judge is None else 1.0 - JUDGE_WEIGHT) / len(metrics)
    judged = 0.0 if judge is None else judge * JUDGE_WEIGHT
    value = sum((metric * share for metric in metrics), start=judged)
    return ARScore(value, judge, marks.bertscore_f1, bleu, rouge)


def judge_mark(marks: TextMarks) -> float | None:
    """The judge's part, in [0, 1] for marks within 1 to 10.

    `None` without a judge, or if its reply is not three numbers. Kept fault: a reply with words, or a failed call, on
    the answer or on the reference, is a mark of 0, so that the answer pays for it.
    """
    if marks.judge_reply is None:
        return None
    try:
        mark = _mean_mark(marks.judge_reply)
        if mark is None:
            return None
        own = _mean_mark(marks.judge_reply_on_reference or "")
    except ValueError:
        return 0.0
    if own is None:
        return mark
    return min(mark / own if own > 0 else mark, 1.0)


def _mean_mark(reply: str) -> float | None:
    """Mean of three marks in tenths, `None` for another number of marks; a part that is no number raises."""
    marks = [float(part) for part in reply.split(",")]
    return sum(marks) / 3.0 / 10.0 if len(marks) == 3 else None


def bleu4(candidate: str, reference: str) -> float:
    """Sentence BLEU-4 of lower-cased words (split on white space), smoothing method 1, uniform weights."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    smoothing = SmoothingFunction().method1
    return float(sentence_bleu([reference.lower().split()], candidate.lower().split(), smoothing_function=smoothing))


def rouge_l(candidate: str, reference: str) -> float:
    """F1 of ROUGE-L over stemmed words."""
    return float(_rouge_scorer().score(reference, candidate)["rougeL"].fmeasure)


@cache
def _rouge_scorer() -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)
