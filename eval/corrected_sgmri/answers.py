"""The A-Score of one record: what its key asks for, and how right an answer is.

Asked are all tasks but localization and captioning. A key that nothing can be compared with (an open-ended one, a choice
without an option, a type that the benchmark does not name) is left out and counted, never scored 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.schema import Answer, Record
from benchmarks.sgmri import BOX_TASKS, YES_NO, level_and_task
from collators.codecs.base import Invalid
from eval.corrected_sgmri.reading import read_letter, read_letters, read_number, read_yes_no
from eval.generic import normalise

_WORDS = ("yes", "no")
# Options of a question that lists none.
_OPTIONS = ("A", "B", "C", "D")
Kind = Literal["yes_no", "letter", "letters", "number", "text"]
Value = str | int | frozenset[str]


@dataclass(frozen=True, slots=True)
class Key:
    """The right answer in the form in which it is compared."""

    kind: Kind
    value: Value


@dataclass(frozen=True, slots=True)
class Mark:
    """How an answer compares with the key.

    Attributes:
        score: In [0, 1].
        given: The answer as read; `None` if it cannot be read.
        fault: Why it cannot; else `None`.
    """

    score: float
    given: Value | None = None
    fault: str | None = None


def key_of(record: Record) -> Key | str | None:
    """The record's key; the name under which it is counted if it has none; `None` if no A-Score is asked."""
    if level_and_task(record)[1] in BOX_TASKS:
        return None
    text, label = record.target.text or "", record.target.label
    match record.answer_type:
        case "closed_ended":
            return _closed_key(record)
        case "single_choice":
            return _key("letter", read_letter(label or text, _options(record)))
        case "multiple_choice" | "multi_choice":
            return _key("letters", read_letters(text, _options(record)))
        case "open_ended":
            return "open_ended"
        case _:
            return "unknown_answer_type"


def _key(kind: Kind, value: Value | Invalid) -> Key | str:
    return "unreadable_key" if isinstance(value, Invalid) else Key(kind, value)


def _closed_key(record: Record) -> Key | str:
    counting = level_and_task(record)[1] == "counting"
    text = record.target.text or ""
    for given in (record.target.label or "", text):
        words = normalise(given).split()
        if words and words[0] in _WORDS:
            return Key("yes_no", words[0].capitalize())
        number = read_number(given)
        # Elsewhere a number is the whole key: a text that holds one is a text.
        if (counting or len(words) == 1) and not isinstance(number, Invalid):
            return Key("number", number)
    return Key("text", normalise(text)) if text.strip() else "unreadable_key"


def mark(key: Key, answer: Answer, record: Record) -> Mark:
    """Compares an answer with the key.

    The answer's label, where its form has one, is the class it names; else its text is read.
    """
    given = _given(key.kind, answer, record)
    if isinstance(given, Invalid):
        return Mark(0.0, fault=given.reason)
    if isinstance(given, frozenset) and isinstance(key.value, frozenset):
        return Mark(2 * len(given & key.value) / (len(given) + len(key.value)), given)
    return Mark(float(given == key.value), given)


def _given(kind: Kind, answer: Answer, record: Record) -> Value | Invalid:
    text, label = answer.text or "", answer.label
    match kind:
        case "yes_no":
            return label if label is not None and label in YES_NO else read_yes_no(text)
        case "letter":
            options = _options(record)
            return label if label is not None and label in options else read_letter(text, options)
        case "letters":
            return read_letters(text, _options(record))
        case "number":
            return read_number(text or label or "")
        case "text":
            return normalise(text) or Invalid("empty_answer")


def _options(record: Record) -> Sequence[str]:
    """The option letters of the question, as capitals."""
    return [choice.upper() for choice in record.choices if len(choice) == 1 and choice.isalpha()] or _OPTIONS
