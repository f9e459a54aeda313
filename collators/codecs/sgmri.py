"""SGMRI-VQA codecs in JSON: the published training target, and our own form with the answer first.

    sgmri_json          {"reasoning": "...", "answer": "...", "bboxes": [{"frame": 7, "label": "Mass", "bbox": [x, y, w, h]}]}
    sgmri_answer_first  {"answer":"...","bboxes":[{"frame":7,"label":"Mass","bbox":[x,y,w,h]}],"reasoning":"..."}

`bbox` is left edge, top edge, width and height in native pixels of the frame; `frame` is its official number. Boxes
belong to localization and captioning only; in other tasks they are neither written nor read. At image level the
published form calls the one frame 1, ours leaves it out; both are read, and so is the slice's own number. Source of
the published form: sgmri.md, section 6 (the authors' converter); its spacing is not published: ours is that of `json.dumps`.

Both read fields in any order. A text that is no such object, or has a box that cannot be placed, is invalid.
Losses of a round trip: evidence boxes of a task without boxes; in our form an empty reasoning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from benchmarks.schema import Answer, Ask, Box
from benchmarks.scintiground_text import plain_number
from benchmarks.sgmri import BOX_TASKS, RECORD_TASKS, YES_NO, Level, level_and_task
from collators.codecs.base import ClosedForm, CodecError, Invalid
from collators.codecs.scintiground_parse import is_sentence, is_storable, load_object


class SgmriJson:
    """The published training target: reasoning, answer, boxes."""

    name = "sgmri_json"
    tasks: tuple[str, ...] | None = RECORD_TASKS

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the target text.

        Raises:
            CodecError: The task is not one of the benchmark, the answer has no text, or a box is on no frame.
        """
        level, task = asked(ask, self.name)
        bboxes = [] if task not in BOX_TASKS else [_written(box, ask, level, self.name) for box in answer.boxes]
        fields = {"reasoning": answer.reasoning or "", "answer": answer_text(answer, ask, self.name), "bboxes": bboxes}
        return json.dumps(fields, ensure_ascii=False)

    def decode(self, text: object, ask: Ask) -> Answer | Invalid:
        """Reads the object; never raises."""
        payload = load_object(text)
        if isinstance(payload, Invalid):
            return payload
        try:
            level, task = level_and_task(ask)
        except ValueError:
            return Invalid("unsupported_task")
        answer = _read_answer(payload.get("answer"))
        if isinstance(answer, Invalid):
            return answer
        reasoning = payload.get("reasoning") or None
        if not isinstance(reasoning, str | None):
            return Invalid("invalid_reasoning")
        if not is_storable(answer + (reasoning or "")):
            return Invalid("lone_surrogate")
        boxes = _read_boxes(payload.get("bboxes", []), ask, level) if task in BOX_TASKS else ()
        if isinstance(boxes, Invalid):
            return boxes
        return Answer(text=answer, label=choice_of(answer, ask), boxes=boxes, reasoning=reasoning)

    def closed_form(self, ask: Ask) -> ClosedForm | None:  # noqa: ARG002 - the protocol's arguments
        """None: a reasoning of the model's own settles the answer before it is written."""
        return None

    def class_offset(self, text: str, ask: Ask) -> int | None:  # noqa: ARG002 - the protocol's arguments
        """None, as there is no class."""
        return None


class SgmriAnswerFirst(SgmriJson):
    """Our own form: the answer directly after the prompt, then boxes, then the reasoning if there is one."""

    name = "sgmri_answer_first"

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the target text.

        Raises:
            CodecError: As `SgmriJson.encode`.
        """
        level, task = asked(ask, self.name)
        fields: dict[str, Any] = {"answer": answer_text(answer, ask, self.name)}
        if task in BOX_TASKS:
            bboxes = [_written(box, ask, level, self.name) for box in answer.boxes]
            if level == "image":
                bboxes = [{key: value for key, value in box.items() if key != "frame"} for box in bboxes]
            fields["bboxes"] = bboxes
        if answer.reasoning:
            fields["reasoning"] = answer.reasoning
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    def closed_form(self, ask: Ask) -> ClosedForm | None:
        """The answer of a yes/no question, directly after the prompt."""
        if ask.choices != YES_NO:
            return None
        return ClosedForm(labels=YES_NO, opening='{"answer":"', closing='"', text_follows=True)


def asked(ask: Ask, codec: str) -> tuple[Level, str]:
    """Level and official task of a question.

    Raises:
        CodecError: The task is not one of the benchmark.
    """
    try:
        return level_and_task(ask)
    except ValueError as error:
        raise refusal(str(error), ask, codec, fix="use codec plain for data of your own") from error


def answer_text(answer: Answer, ask: Ask, codec: str) -> str:
    """The answer's text.

    Raises:
        CodecError: There is none.
    """
    if not is_sentence(answer.text):
        raise refusal(f"the answer's text is {answer.text!r}", ask, codec)
    return str(answer.text)


def choice_of(text: str, ask: Ask) -> str | None:
    """The choice that an answer is, capitals, brackets and a full stop aside; `None` if it is not one alone."""
    plain = text.strip().strip("().").casefold()
    return {choice.casefold(): choice for choice in ask.choices}.get(plain)


def frame_of(image: int, ask: Ask, codec: str) -> int:
    """The official number of an image's frame.

    Raises:
        CodecError: The image is not one of the question, or has no frame.
    """
    frame = ask.images[image].frame if 0 <= image < len(ask.images) else None
    if frame is None:
        raise refusal(f"a box lies on image {image}, which is no numbered frame of the question", ask, codec)
    return frame


def place_of(frame: int | None, ask: Ask, level: Level) -> int | Invalid:
    """The image that a frame number means; at image level the one image, whether it is called 1 or by its number."""
    frames = [image.frame for image in ask.images]
    if level == "image" and frame in (None, 1, *frames[:1]):
        return 0
    if frame is None:
        return Invalid("box_without_frame")
    return frames.index(frame) if frame in frames else Invalid("frame_not_in_volume")


def box_at(image: int, numbers: object, label: str | None) -> Box | Invalid:
    """A box from left, top, width and height in native pixels."""
    if not isinstance(numbers, list) or len(numbers) != 4:
        return Invalid("invalid_bbox")
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in numbers):
        return Invalid("invalid_bbox")
    try:
        x, y, width, height = map(float, numbers)
    except OverflowError:
        return Invalid("invalid_bbox")
    if not all(map(math.isfinite, (x, y, x + width, y + height))):
        return Invalid("invalid_bbox")
    if not (x < x + width and y < y + height):
        return Invalid("empty_bbox")
    return Box(image=image, xyxy=(x, y, x + width, y + height), label=label)


def xywh(box: Box) -> list[int | float]:
    """Left, top, width and height, whole numbers as integers."""
    x1, y1, x2, y2 = box.xyxy
    return [plain_number(value) for value in (x1, y1, x2 - x1, y2 - y1)]


def refusal(message: str, ask: Ask, codec: str, *, fix: str = "mend the record's target") -> CodecError:
    """What these codecs raise."""
    return CodecError(message, where=f"codec {codec}, task {ask.task}, question {ask.question[:60]!r}", fix=fix)


def _written(box: Box, ask: Ask, level: Level, codec: str) -> dict[str, Any]:
    frame = frame_of(box.image, ask, codec)
    return {"frame": 1 if level == "image" else frame, "label": box.label or "", "bbox": xywh(box)}


def _read_answer(value: object) -> str | Invalid:
    """The answer's text; a number counts as the text of it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    return value if isinstance(value, str) and value.strip() else Invalid("invalid_answer")


def _read_boxes(value: object, ask: Ask, level: Level) -> tuple[Box, ...] | Invalid:
    if not isinstance(value, list):
        return Invalid("invalid_bboxes")
    boxes = []
    for item in value:
        box = _read_box(item, ask, level) if isinstance(item, Mapping) else Invalid("invalid_bboxes")
        if isinstance(box, Invalid):
            return box
        boxes.append(box)
    return tuple(boxes)


def _read_box(item: Mapping[str, Any], ask: Ask, level: Level) -> Box | Invalid:
    frame, label = item.get("frame"), item.get("label") or None
    if not isinstance(frame, int | None) or isinstance(frame, bool):
        return Invalid("invalid_frame")
    if not isinstance(label, str | None) or not is_storable(label or ""):
        return Invalid("invalid_label")
    place = place_of(frame, ask, level)
    return place if isinstance(place, Invalid) else box_at(place, item.get("bbox"), label)
