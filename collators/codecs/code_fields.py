"""The text around location and mask codes: class, objects and sentence, separated by `;`.

    abnormal ; <loc0261><loc0635><loc0357><loc0833> left knee ; <loc...> left knee ; The left knee is hot.

Each part may be absent. An object is four location codes in the order y1 x1 y2 x2, with `mask_codes` mask codes
behind them, and its label if it has one. Words before the first object are the class, words after the last one
are the sentence. Without an object, words are a sentence, but for those up to the first `;` that are a class of
the question: one of its choices, or of the ScintiGround task (capitals do not matter).

So the text is unambiguous as long as codes stand in objects only and `;` in the sentence only; `write_fields`
refuses everything else. Losses of a round trip: blanks around words; a text that repeats the class, or is one;
and without an object, a class that is not one of the question's comes back as the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.schema import Ask
from benchmarks.scintiground_text import CLASS_WORDS, TEXT_VIEWS
from collators.codecs.base import CodecError, Invalid
from collators.codecs.location import LAST, GridBox, grid_to_text
from collators.codecs.scintiground_parse import is_storable

LAST_MASK_CODE = 127
SEPARATOR = " ; "
_CODE = re.compile(r"<(?:loc[0-9]{4}|seg[0-9]{3})>")
_OBJECT = re.compile(r"((?:<loc[0-9]{4}>){4})((?:<seg[0-9]{3}>)*)([^;]*)(;\s*|\Z)")
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coded:
    """One object: grid numbers (x1, y1, x2, y2), mask codes 0..127, label."""

    grid: GridBox
    codes: tuple[int, ...] = ()
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """What a text says: class, objects, sentence."""

    label: str | None = None
    objects: tuple[Coded, ...] = ()
    text: str | None = None


def scintiground_classes(ask: Ask) -> tuple[str, ...]:
    """The class words if this is a closed ScintiGround question, the positive one first; else none.

    Such a question names no choices, and its images are the benchmark's two views.
    """
    views = all(image.view in TEXT_VIEWS for image in ask.images)
    return CLASS_WORDS.get(ask.task, ()) if views and not ask.choices else ()


def write_fields(fields: Fields, ask: Ask, *, codec: str) -> str:
    """Writes the text.

    Raises:
        CodecError: There is nothing to write, or it would be read back as something else.
    """
    problem = next(_problems(fields, ask), None)
    if problem is not None:
        where = f"codec {codec}, task {ask.task}, question {ask.question[:60]!r}"
        raise CodecError(problem[0], where=where, fix=problem[1])
    parts = [] if fields.label is None else [fields.label.strip()]
    for item in fields.objects:
        parts.append(f"{write_codes(item)} {item.label or ''}".strip())
    if fields.text is not None and (fields.objects or fields.text != fields.label):
        parts.append(fields.text.strip())
    return SEPARATOR.join(parts)


def write_codes(item: Coded) -> str:
    """The codes of an object, without its label."""
    return grid_to_text(item.grid) + "".join(f"<seg{code:03d}>" for code in item.codes)


def read_fields(text: object, ask: Ask, *, mask_codes: int) -> Fields | Invalid:
    """Reads a text; whatever it is, the result is a value, never an exception.

    Args:
        text: A model's text.
        ask: The question.
        mask_codes: How many mask codes each object has.
    """
    if not isinstance(text, str):
        return Invalid("not_text")
    if not is_storable(text):
        return Invalid("lone_surrogate")
    text = text.strip()
    if not text:
        return Invalid("empty")
    first = _CODE.search(text)
    if first is None:
        return _read_words(text, ask)
    head, position = text[: first.start()].strip(), first.start()
    label = head.removesuffix(";").rstrip()
    if head and (head == label or not label or ";" in label):
        return Invalid("stray_words")
    objects: list[Coded] = []
    separator = ""
    while (match := _OBJECT.match(text, position)) is not None:
        separator, position = match[4], match.end()
        coded = _read_object(match, mask_codes)
        if isinstance(coded, Invalid):
            return coded
        objects.append(coded)
    sentence = text[position:]
    if not objects or _CODE.search(sentence):
        return Invalid("invalid_codes")
    if separator and not sentence:
        return Invalid("empty_field")
    return Fields(label=_spelled(label, ask) or label or None, objects=tuple(objects), text=sentence or None)


def _read_object(match: re.Match[str], mask_codes: int) -> Coded | Invalid:
    y1, x1, y2, x2 = (int(number) for number in _NUMBER.findall(match[1]))
    codes = tuple(int(number) for number in _NUMBER.findall(match[2]))
    label = match[3].strip()
    if max(y1, x1, y2, x2) > LAST or max(codes, default=0) > LAST_MASK_CODE:
        return Invalid("invalid_codes")
    if len(codes) != mask_codes or _CODE.search(label):
        return Invalid("invalid_codes")
    return Coded(grid=(x1, y1, x2, y2), codes=codes, label=label or None)


def _read_words(text: str, ask: Ask) -> Fields | Invalid:
    head, separator, tail = (part.strip() for part in text.partition(";"))
    label = _spelled(head, ask)
    if label is None:
        return Fields(text=text)
    if separator and not tail:
        return Invalid("empty_field")
    return Fields(label=label, text=tail or None)


def _spelled(word: str, ask: Ask) -> str | None:
    """The class of the question that a word is, as the question spells it."""
    classes = ask.choices or scintiground_classes(ask)
    folded = {name.strip().casefold(): name for name in classes}
    return word if word in classes else folded.get(word.casefold())


def _problems(fields: Fields, ask: Ask) -> Iterator[tuple[str, str]]:
    """Pairs of what is wrong and what to do."""
    mend = "mend the record's target, or use another codec"
    label, text = fields.label, fields.text
    if label is None and text is None and not fields.objects:
        yield "the answer has neither text, label nor boxes", "leave the record or its task out"
    names = [
        ("label", label),
        ("text", text),
        *((f"label of box {n + 1}", o.label) for n, o in enumerate(fields.objects)),
    ]
    for name, words in names:
        found = None if words is None else _CODE.search(words)
        if found is not None:
            yield f"the {name} holds the code {found[0]}", mend
        if name != "text" and words is not None and ";" in words:
            yield f"the {name} {words!r} holds ';', which separates the parts of the text", mend
        if words is not None and not words.strip() and name in ("label", "text"):
            yield f"the {name} is blank", mend
    if not fields.objects:
        yield from _word_problems(label, text, ask)


def _word_problems(label: str | None, text: str | None, ask: Ask) -> Iterator[tuple[str, str]]:
    if label is None and text is not None:
        read = _read_words(text.strip(), ask)
        if isinstance(read, Fields) and read.label is not None and read.text is not None:
            yield f"the text {text!r} would be read as the class {read.label!r} and a sentence", "give it as the label"
    if label is None or text == label:
        return
    if text is not None and _spelled(label.strip(), ask) is None:
        yield (
            f"the label {label!r} is no class of the question: before a text it would be read as part of it",
            "name the choices of the question",
        )
    if text is None and label in scintiground_classes(ask):
        # Label scores are of the class and the separator behind it.
        yield (
            f"a {ask.task} answer needs a sentence beside its class {label!r}",
            "give the record an answer, or choices",
        )
