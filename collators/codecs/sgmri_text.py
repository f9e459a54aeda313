"""SGMRI-VQA answers as plain text: `answer. reasoning`, boxes as `Frame 7: <bbx>[x, y, w, h]</bbx>`.

This is the form of the release's own answers and of the released model's outputs (sgmri.md, sections 1 and 8), and what
chat models are asked for. `[x, y, w, h]` is left edge, top edge, width and height in native pixels.

Grammar of boxes: a `<bbx>` tag holds four numbers, fractions allowed. Its frame is the last one named before it:
`Frame 7`, `frames 7-9`, `Slice 7` or `frame #7`, with any words or marks between it and the tag. Several frames named
together, as a range or a list, hold the box on each of them. At image level frames are not looked at. At volume level a box
before which no frame is named makes the text invalid, as does a tag without four numbers.

Closed questions (yes/no, a letter, letters, a number) have their answer after a phrase such as `the final answer is:`,
else in the first sentence; the rest is the reasoning. The text of an open question is its answer as a whole, so that
there a reasoning comes back as part of the answer: the only loss of a round trip beside labels of boxes.
"""

from __future__ import annotations

import re

from benchmarks.schema import Answer, Ask, Box
from benchmarks.sgmri import BOX_TASKS, RECORD_TASKS, Level, level_and_task
from benchmarks.sgmri_text import FRAMES, frame_numbers
from collators.codecs.base import ClosedForm, Invalid
from collators.codecs.scintiground_parse import is_storable
from collators.codecs.sgmri import answer_text, asked, box_at, choice_of, frame_of, place_of, xywh

_TAG = re.compile(r"<bbx>(.*?)</bbx>", re.DOTALL | re.IGNORECASE)
_NUMBERS = re.compile(r"\s*\[\s*((?:-?[0-9]+(?:\.[0-9]+)?\s*,\s*){3}-?[0-9]+(?:\.[0-9]+)?)\s*\]\s*")
_PHRASE = re.compile(r"(?:final answer|my answer|the answer) is\s*:?[\s*]*([^\n]*)", re.IGNORECASE)


class SgmriText:
    """Plain text: the answer, then the reasoning."""

    name = "sgmri_text"
    tasks: tuple[str, ...] | None = RECORD_TASKS

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the text.

        Boxes of a box task that the answer's text does not state already are added to it; if it states other
        ones, their tags are replaced.

        Raises:
            CodecError: The task is not one of the benchmark, the answer has no text, or a box is on no frame.
        """
        level, task = asked(ask, self.name)
        text = answer_text(answer, ask, self.name).strip()
        if task in BOX_TASKS and _places(text, ask, level) != sorted((box.image, box.xyxy) for box in answer.boxes):
            text = _TAG.sub("", text).strip()
            tags = [
                ("" if level == "image" else f"Frame {frame_of(box.image, ask, self.name)}: ") + _tag(box)
                for box in answer.boxes
            ]
            text = " ".join(filter(None, (_sentence(text), "; ".join(tags))))
        return " ".join(filter(None, (_sentence(text), (answer.reasoning or "").strip())))

    def decode(self, text: object, ask: Ask) -> Answer | Invalid:
        """Reads a text; never raises."""
        if not isinstance(text, str):
            return Invalid("not_text")
        if not text.strip():
            return Invalid("empty")
        if not is_storable(text):
            return Invalid("lone_surrogate")
        try:
            level, task = level_and_task(ask)
        except ValueError:
            return Invalid("unsupported_task")
        boxes = _boxes(text, ask, level) if task in BOX_TASKS else ()
        if isinstance(boxes, Invalid):
            return boxes
        if ask.answer_type == "open_ended" or task in BOX_TASKS:
            return Answer(text=text.strip(), boxes=boxes)
        answer, reasoning = _closed(text.strip())
        return Answer(text=answer, label=choice_of(answer, ask), reasoning=reasoning)

    def closed_form(self, ask: Ask) -> ClosedForm | None:  # noqa: ARG002 - the protocol's arguments
        """None: nothing sets a class apart from the words around it."""
        return None

    def class_offset(self, text: str, ask: Ask) -> int | None:  # noqa: ARG002 - the protocol's arguments
        """None, as there is no class."""
        return None


def _tag(box: Box) -> str:
    return f"<bbx>[{','.join(map(str, xywh(box)))}]</bbx>"


def _sentence(text: str) -> str:
    """The text with a full stop, unless it ends in a mark of its own."""
    return text if not text or text[-1] in ".!?;:" else f"{text}."


def _places(text: str, ask: Ask, level: Level) -> list[tuple[int, tuple[float, float, float, float]]] | None:
    boxes = _boxes(text, ask, level)
    return None if isinstance(boxes, Invalid) else sorted((box.image, box.xyxy) for box in boxes)


def _boxes(text: str, ask: Ask, level: Level) -> tuple[Box, ...] | Invalid:
    found: list[Box] = []
    named = [(match.end(), match["numbers"]) for match in FRAMES.finditer(text)]
    for tag in _TAG.finditer(text):
        numbers = _NUMBERS.fullmatch(tag[1])
        if numbers is None:
            return Invalid("invalid_bbox")
        before = [frames for end, frames in named if end <= tag.start()]
        for frame in [None] if level == "image" or not before else frame_numbers(before[-1]):
            place = place_of(frame, ask, level)
            if isinstance(place, Invalid):
                return place
            box = box_at(place, [float(part) for part in numbers[1].split(",")], None)
            if isinstance(box, Invalid):
                return box
            found.append(box)
    return tuple(found)


def _closed(text: str) -> tuple[str, str | None]:
    """Answer and reasoning of a closed question."""
    phrase = _PHRASE.search(text)
    if phrase is not None and phrase[1].strip(" .*"):
        return phrase[1].strip(" .*"), text
    head, _, rest = text.partition(". ")
    return head.strip().removesuffix("."), rest.strip() or None
