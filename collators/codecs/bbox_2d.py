"""The box language of Qwen2-VL and Qwen3-VL: JSON with `bbox_2d`, corners in thousandths of the image.

    [{"bbox_2d": [500, 250, 750, 750], "label": "left knee"}]
    {"answer": "The left knee is hot.", "objects": [{"bbox_2d": [500, 250, 750, 750], "label": "left knee", "frame": 7}]}

The list alone is what these models write by themselves; the object adds an answer in words. With several images each box says
its `frame`, its `view`, or else its `image`, counted from 1. Whole numbers from 0 to 1000, x1 y1 x2 y2, independent of the
size that the processor resizes to: a round trip moves an edge by at most half a thousandth of the image's side, and more only
where a box is narrower than one thousandth, which is widened to that. (Qwen2.5-VL writes pixels of the resized image instead:
not this codec. Source: QwenLM/Qwen3-VL, issues 1486 and 1633, in the project's list of pitfalls.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.schema import XYXY, Answer, Ask, Box, Image
from collators.codecs.base import ClosedForm, CodecError, Invalid
from collators.codecs.scintiground_parse import is_storable

SCALE = 1000


class Bbox2d:
    """Answers and boxes in thousandths."""

    name = "bbox_2d"
    tasks: tuple[str, ...] | None = None

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the list of boxes, or the object where there is an answer in words.

        Raises:
            CodecError: There is neither text nor box, or a box lies on no image of the question.
        """
        objects = [_written(box, ask) for box in answer.boxes]
        text = answer.label if answer.text is None else answer.text
        if text is None and not objects:
            raise _refusal("the answer has neither text nor label nor boxes", ask)
        return json.dumps(objects if text is None else {"answer": text, "objects": objects}, ensure_ascii=False)

    def decode(self, text: object, ask: Ask) -> Answer | Invalid:
        """Reads both forms, also fenced as a code block; never raises."""
        if not isinstance(text, str):
            return Invalid("not_text")
        try:
            payload = json.loads(_unfenced(text))
        except (ValueError, RecursionError):
            return Invalid("invalid_json")
        if isinstance(payload, list):
            payload = {"objects": payload}
        if not isinstance(payload, dict) or not payload.keys() & {"answer", "objects"}:
            return Invalid("json_not_object")
        answer, objects = payload.get("answer"), payload.get("objects", [])
        if not isinstance(answer, str | None) or not is_storable(answer or ""):
            return Invalid("invalid_answer")
        if not isinstance(objects, list):
            return Invalid("invalid_boxes")
        boxes = []
        for item in objects:
            box = _read(item, ask)
            if isinstance(box, Invalid):
                return box
            boxes.append(box)
        spelled = {choice.casefold(): choice for choice in ask.choices}
        label = spelled.get(answer.strip().casefold()) if answer is not None else None
        return Answer(text=answer, label=label, boxes=tuple(boxes))

    def closed_form(self, ask: Ask) -> ClosedForm | None:  # noqa: ARG002 - the protocol's arguments
        """None: nothing sets a class apart from the words around it."""
        return None

    def class_offset(self, text: str, ask: Ask) -> int | None:  # noqa: ARG002 - the protocol's arguments
        """None, as there is no class."""
        return None


def _unfenced(text: str) -> str:
    plain = text.strip()
    if plain.startswith("```") and plain.endswith("```") and len(plain) > len("```") * 2:
        return plain.removeprefix("```").removesuffix("```").strip().removeprefix("json")
    return plain


def _written(box: Box, ask: Ask) -> dict[str, Any]:
    if not 0 <= box.image < len(ask.images):
        raise _refusal(f"a box lies on image {box.image}, the question has {len(ask.images)}", ask)
    image = ask.images[box.image]
    fields: dict[str, Any] = {"bbox_2d": _thousandths(box.xyxy, image)}
    if box.label is not None:
        fields["label"] = box.label
    if len(ask.images) > 1:
        key, value = _place(box.image, ask)
        fields[key] = value
    return fields


def _place(number: int, ask: Ask) -> tuple[str, int | str]:
    """How an image is named among several: by frame or view where all have one of their own, else by number."""
    for key in ("frame", "view"):
        values = [getattr(image, key) for image in ask.images]
        if None not in values and len(set(values)) == len(values):
            return key, values[number]
    return "image", number + 1


def _thousandths(xyxy: XYXY, image: Image) -> list[int]:
    grid = []
    for low, high, side in ((xyxy[0], xyxy[2], image.width), (xyxy[1], xyxy[3], image.height)):
        first, last = (min(max(int(value * SCALE / side + 0.5), 0), SCALE) for value in (low, high))
        first = min(first, SCALE - 1)
        grid.append((first, max(last, first + 1)))
    return [grid[0][0], grid[1][0], grid[0][1], grid[1][1]]


def _read(item: object, ask: Ask) -> Box | Invalid:
    if not isinstance(item, Mapping):
        return Invalid("invalid_boxes")
    numbers, label = item.get("bbox_2d"), item.get("label")
    if not isinstance(numbers, list) or len(numbers) != 4:
        return Invalid("invalid_bbox")
    if any(isinstance(value, bool) or not isinstance(value, int) for value in numbers):
        return Invalid("invalid_bbox")
    x1, y1, x2, y2 = numbers
    if not (0 <= x1 < x2 <= SCALE and 0 <= y1 < y2 <= SCALE):
        return Invalid("box_outside_image")
    if not isinstance(label, str | None) or not is_storable(label or ""):
        return Invalid("invalid_label")
    place = _image_of(item, ask)
    if isinstance(place, Invalid):
        return place
    width, height = ask.images[place].width / SCALE, ask.images[place].height / SCALE
    return Box(image=place, xyxy=(x1 * width, y1 * height, x2 * width, y2 * height), label=label)


def _image_of(item: Mapping[str, Any], ask: Ask) -> int | Invalid:
    if len(ask.images) == 1:
        return 0
    key = _place(0, ask)[0]
    names = [_place(number, ask)[1] for number in range(len(ask.images))]
    value = item.get(key)
    if isinstance(value, bool) or value not in names:
        return Invalid(f"box_without_{key}" if value is None else f"{key}_not_shown")
    return names.index(value)


def _refusal(message: str, ask: Ask) -> CodecError:
    return CodecError(
        message,
        where=f"codec bbox_2d, task {ask.task}, question {ask.question[:60]!r}",
        fix="choose a codec that writes what the target holds, or mend the record's target",
    )
