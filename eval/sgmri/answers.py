"""The published A-Score: yes or no, a number, or letters, read from free text.

Source: sgmri.md section 8; checked against the authors' scorer (github.com/lamawmouk/SGMRIQA, commit a77adeb).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

_PUNCTUATION: Final = ".,!;:"
# An open tag without its closer stays in the text.
_THINKING: Final = re.compile(r"<think>.*?</think>", re.DOTALL)
_FINAL: Final = r"[Tt]herefore,?\s+the\s+final\s+answer\s+is:\s*"
# Only one line is kept; a reply that goes on below loses the rest.
_FINAL_ANSWER: Final = re.compile(_FINAL + r"(.+)")
_FINAL_NUMBER: Final = re.compile(_FINAL + r"\*{0,2}(\d+)")
# Kept fault: of "A, C" only the A is left, in multiple choice as well.
_LEADING_LETTER: Final = re.compile(r"[A-D]\b")
_ANSWER_IS: Final = re.compile(r"(?:my|the) answer is[:\s]*\**\s*(yes|no)\b")
_WHOLE_NUMBER: Final = re.compile(r"\b\d+\b")
_NOTHING: Final = re.compile(r"\b(?:none|zero)\b", re.IGNORECASE)
# Kept fault: "No" alone is not 0, "no" with one of these words anywhere behind it on the line is.
_NO: Final = re.compile(r"\bno\b", re.IGNORECASE)
_NO_WHAT: Final = re.compile(r"\b(?:abnormal|finding)", re.IGNORECASE)
# Kept faults: knows this one wording, and takes everything up to the full stop with it.
_DENIED: Final = re.compile(r"[Ii]t\s+is\s+not\s+\([A-Da-d]\)[^.]*\.?")
# Kept fault: options beyond D do not exist.
_BRACKETED: Final = re.compile(r"\(([A-Da-d])\)")
# Kept fault: the article "a" is option A.
_ALONE: Final = re.compile(r"\b([A-Da-d])\b")


class AScore(NamedTuple):
    """A-Score of one answer.

    Attributes:
        value: In [0, 1].
        details: What was read on both sides, and by which rule (`method`); empty for an unknown type.
    """

    value: float
    details: dict[str, Any]


def without_thinking(text: str) -> str:
    """The text without its `<think>...</think>` blocks, stripped."""
    return _THINKING.sub("", text).strip()


def final_answer(text: str, qa_type: str) -> str:
    """What follows "Therefore, the final answer is:" on its line, or the whole text without these words.

    The published scorer cuts answers about volumes, for the A-Score alone.
    """
    match = _FINAL_ANSWER.search(text)
    if match is None:
        return text
    answer = match[1].strip().rstrip(".").replace("*", "").strip()
    if qa_type in ("single_choice", "multiple_choice"):
        letter = _LEADING_LETTER.match(answer)
        return letter[0] if letter is not None else answer
    if qa_type == "closed_ended":
        word = _first_word(answer)
        return word if word.lower() in ("yes", "no") else answer
    return answer


def read_yes_no(text: str) -> bool | None:
    """Yes, no, or `None` if unreadable."""
    lower = text.lower()
    word = _first_word(lower)
    if word in ("yes", "y", "no", "n"):
        return word.startswith("y")
    match = _ANSWER_IS.search(lower)
    if match is not None:
        return match[1] == "yes"
    # Kept fault: inside words too, so "abnormal", "diagnosis" and "unknown" say no and "eyes" say yes.
    yes, no = "yes" in lower, "no" in lower
    return yes if yes != no else None


def read_number(text: str) -> int | None:
    """A whole number, or `None` if there is none.

    Raises:
        ValueError: More digits than Python converts.
    """
    try:
        return int(text)
    except ValueError:
        pass
    match = _FINAL_NUMBER.search(text)
    if match is not None:
        return int(match[1])
    numbers = _WHOLE_NUMBER.findall(text)
    if numbers:
        # Kept fault: the last one, often a frame; of "3.0" the 0.
        return int(numbers[-1])
    return 0 if _NOTHING.search(text) or any(map(_denies_findings, text.split("\n"))) else None


def _denies_findings(line: str) -> bool:
    # The first "no" of a line has the most behind it; trying each would take minutes where a model repeats itself.
    first = _NO.search(line)
    return first is not None and _NO_WHAT.search(line, first.end()) is not None


def read_letters(text: str) -> frozenset[str]:
    """The options chosen, in capitals: those in round brackets, else those that stand alone."""
    affirmed = _DENIED.sub("", text)
    return frozenset(letter.upper() for letter in _BRACKETED.findall(affirmed) or _ALONE.findall(affirmed))


def score_answer(prediction: str, key: str, qa_type: str, labels: Sequence[str] = ()) -> AScore:
    """Scores one answer.

    Args:
        prediction: The answer, without thinking and already cut where that is done.
        key: The official answer.
        qa_type: Official type of question; unknown types earn 0. Open-ended questions are never given to this
            score. A `chain_of_thought` is scored as where no sentence encoder is installed: by `labels`, or by words.
        labels: Findings that a `chain_of_thought` has to name.

    Raises:
        ValueError: A number of more digits than Python converts.
    """
    if qa_type == "closed_ended":
        return _closed(prediction, key)
    if qa_type == "single_choice":
        return _single_choice(prediction, key)
    if qa_type in ("multiple_choice", "multi_choice"):
        return _multiple_choice(prediction, key)
    if qa_type == "chain_of_thought":
        return _recall(without_thinking(prediction).lower(), without_thinking(key).lower(), labels)
    return AScore(0.0, {})


def _closed(prediction: str, key: str) -> AScore:
    said, truth = read_yes_no(prediction), read_yes_no(key)
    if said is None or truth is None:
        number = read_number(key)
        if number is not None:
            counted = read_number(prediction)
            details = {"pred_parsed": counted, "gt_parsed": number, "method": "closed_ended_numeric"}
            return AScore(float(counted == number), details)
    # Kept fault: a key that is neither, such as "FLAIR", cannot be met.
    details = {"pred_parsed": said, "gt_parsed": truth, "method": "closed_ended"}
    return AScore(float(said is not None and said == truth), details)


def _single_choice(prediction: str, key: str) -> AScore:
    # Kept fault: of several letters the first of the alphabet counts.
    said, truth = (min(read_letters(text), default=None) for text in (prediction, key))
    details = {"pred_letter": said, "gt_letter": truth, "method": "single_choice"}
    return AScore(float(said is not None and said == truth), details)


def _multiple_choice(prediction: str, key: str) -> AScore:
    said, truth = read_letters(prediction), read_letters(key)
    if not truth:
        return AScore(0.0, {"method": "multiple_choice"})
    details = {"pred_set": sorted(said), "gt_set": sorted(truth), "method": "multiple_choice"}
    return AScore(f1(len(said & truth), predicted=len(said), truths=len(truth)), details)


def f1(hits: int, *, predicted: int, truths: int) -> float:
    """F1 by the published formula, whose last digits decide how a mean of means is rounded; 0 without a hit."""
    if not hits:
        return 0.0
    precision, recall = hits / predicted, hits / truths
    return 2 * precision * recall / (precision + recall)


def _recall(prediction: str, key: str, labels: Sequence[str]) -> AScore:
    details = {"method": "open_ended"}
    if labels:
        return AScore(sum(label.lower() in prediction for label in labels) / len(labels), details)
    words = set(key.split())
    return AScore(len(words & set(prediction.split())) / len(words) if words else 0.0, details)


def _first_word(text: str) -> str:
    return next(iter(text.split()), "").strip(_PUNCTUATION)
