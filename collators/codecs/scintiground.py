"""ScintiGround codecs: the release's multitask JSON and the two older forms.

A box's label is the region, with blanks; the text has it once, with underscores. The view of a
box's image (`ANT`, `POST`) is written `ANT`, `PST`. Decoding applies the published validity gate and
places each box on the image of its view.

Losses of a round trip: an underscore in a region comes back as a blank; whole floats are written as
integers. A fraction of a pixel is written as it is, but the multitask JSON does not decode it: the
benchmark allows integers only. Evidence boxes of a `vqa` row are not written.
"""

from __future__ import annotations

from typing import Any

from benchmarks.schema import Answer, Ask, Box
from benchmarks.scintiground_text import (
    BOX_TASKS,
    CLASS_WORDS,
    TASKS,
    TEXT_VIEWS,
    OfficialAnswer,
    ViewBox,
    multitask_json,
    old_json,
    tags,
)
from collators.codecs.base import ClosedForm, CodecError, Invalid
from collators.codecs.class_slot import json_class_offset, tag_class_offset
from collators.codecs.scintiground_parse import Gate, first_fault, is_sentence, is_storable, load_object, load_tags

# What follows the class in both JSON forms; a view's name follows the latter.
_JSON_CLOSING = {"vqa": '"}', "grounded_vqa": '","boxes":[{"view":"'}
_TAG_MARKS = ("<REG>", "</REG>", "<CLS>", "<BBX>")


class _ClassMember:
    """What both JSON forms share: the class is the member `class`, after the sentence."""

    def closed_form(self, ask: Ask) -> ClosedForm | None:
        """The class after the sentence."""
        if ask.task not in CLASS_WORDS:
            return None
        return ClosedForm(labels=CLASS_WORDS[ask.task], opening=None, closing=_JSON_CLOSING[ask.task])

    def class_offset(self, text: str, ask: Ask) -> int | None:
        """Where the value of `class` begins."""
        return json_class_offset(text) if ask.task in CLASS_WORDS else None


class ScintigroundJson(_ClassMember):
    """The release's multitask JSON: compact, ASCII, the task named first, integer pixels."""

    name = "scintiground_json"
    tasks: tuple[str, ...] | None = TASKS

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the target text, byte for byte as in the release.

        Raises:
            CodecError: Another task; text, label, region or box missing; a view not ANT or POST.
        """
        return multitask_json(official_answer(answer, ask, codec=self.name))

    def decode(self, text: object, ask: Ask) -> Answer | Invalid:
        """Applies the published gate; never raises."""
        return _decode(load_object(text), ask, with_task=True, whole_pixels=True)


class ScintigroundOldJson(_ClassMember):
    """The older JSON, without the task; fractions of a pixel are allowed."""

    name = "scintiground_old_json"
    tasks: tuple[str, ...] | None = TASKS

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the text.

        Raises:
            CodecError: As `ScintigroundJson.encode`.
        """
        return old_json(official_answer(answer, ask, codec=self.name))

    def decode(self, text: object, ask: Ask) -> Answer | Invalid:
        """Applies the gate without its task check; never raises."""
        return _decode(load_object(text), ask, with_task=False, whole_pixels=False)


class ScintigroundTags:
    """The older tags, for the two tasks with boxes; fractions of a pixel are allowed."""

    name = "scintiground_tags"
    tasks: tuple[str, ...] | None = BOX_TASKS

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the text.

        Raises:
            CodecError: As `ScintigroundJson.encode`; also for `vqa`, whose class this form cannot
                carry, and for sentences or regions that hold tags.
        """
        if ask.task == "vqa":
            raise _refuse(
                "the tag form of a vqa answer is the sentence alone, its class would be lost",
                ask,
                self.name,
                fix="use scintiground_json, or train on the tasks grounding and grounded_vqa only",
            )
        official = official_answer(answer, ask, codec=self.name)
        if any(mark in (official.answer or "") for mark in _TAG_MARKS) or "<" in (official.region or ""):
            raise _refuse("the sentence or the region holds a tag", ask, self.name, fix="use scintiground_json")
        return tags(official)

    def decode(self, text: object, ask: Ask) -> Answer | Invalid:
        """Reads the tags and applies the gate without its task check; never raises."""
        if ask.task not in BOX_TASKS:
            return Invalid("unsupported_task")
        return _decode(load_tags(text, ask.task), ask, with_task=False, whole_pixels=False)

    def closed_form(self, ask: Ask) -> ClosedForm | None:
        """The class of a grounded question, after its sentence and region."""
        if ask.task != "grounded_vqa":
            return None
        return ClosedForm(labels=CLASS_WORDS[ask.task], opening=None, closing="</CLS><")

    def class_offset(self, text: str, ask: Ask) -> int | None:
        """Where the class tag's content begins."""
        return tag_class_offset(text) if ask.task == "grounded_vqa" else None


def official_answer(answer: Answer, ask: Ask, *, codec: str) -> OfficialAnswer:
    """The parts of an answer that the task's text states.

    Raises:
        CodecError: A part is missing or cannot be written.
    """
    if ask.task not in TASKS:
        raise _refuse(
            f"there is no form for the task {ask.task!r}", ask, codec, fix=f"the tasks are {', '.join(TASKS)}"
        )
    text = label = region = None
    boxes: tuple[ViewBox, ...] = ()
    if ask.task in CLASS_WORDS:
        text, label = answer.text, answer.label
        if not is_sentence(text):
            raise _refuse(
                f"the answer's text is {text!r}; a {ask.task} answer needs a sentence",
                ask,
                codec,
                fix="give the record an answer, or task `grounding` if it asks for boxes alone",
            )
        if label not in CLASS_WORDS[ask.task]:
            words = " or ".join(CLASS_WORDS[ask.task])
            raise _refuse(f"the answer's label is {label!r}; it must be {words}", ask, codec)
    if ask.task in BOX_TASKS:
        region = _region(answer, ask, codec)
        boxes = _view_boxes(answer, ask, codec)
    return OfficialAnswer(task=ask.task, answer=text, label=label, region=region, boxes=boxes)


def _region(answer: Answer, ask: Ask, codec: str) -> str:
    regions = {box.label for box in answer.boxes}
    if len(regions) > 1:
        raise _refuse(f"the boxes name several regions: {sorted(map(str, regions))}", ask, codec)
    region = next(iter(regions), None)
    if region is None or not is_sentence(region):
        raise _refuse("no box names a region; the text needs boxes, and their label is the region", ask, codec)
    return region


def _view_boxes(answer: Answer, ask: Ask, codec: str) -> tuple[ViewBox, ...]:
    places = _image_of_view(ask)
    boxes: list[ViewBox] = []
    for box in answer.boxes:
        if not 0 <= box.image < len(ask.images):
            raise _refuse(f"a box lies on image {box.image}, the question has {len(ask.images)}", ask, codec)
        view = ask.images[box.image].view
        if view is None or places.get(TEXT_VIEWS.get(view, view)) != box.image:
            raise _refuse(
                f"image {box.image} is not the ANT or the POST view of the question, its view is {view!r}", ask, codec
            )
        if any(view == other for other, _ in boxes):
            raise _refuse(f"two boxes on the view {view}; the text has one box a view", ask, codec)
        boxes.append((view, box.xyxy))
    return tuple(boxes)


def _image_of_view(ask: Ask) -> dict[str, int]:
    """Text view -> index of the first image with that view."""
    places: dict[str, int] = {}
    for index, image in enumerate(ask.images):
        if image.view is not None and image.view in TEXT_VIEWS:
            places.setdefault(TEXT_VIEWS[image.view], index)
    return places


def _decode(payload: dict[str, Any] | Invalid, ask: Ask, *, with_task: bool, whole_pixels: bool) -> Answer | Invalid:
    if ask.task not in TASKS:
        return Invalid("unsupported_task")
    if isinstance(payload, Invalid):
        return payload
    places = _image_of_view(ask)
    sizes = {view: (float(ask.images[index].width), float(ask.images[index].height)) for view, index in places.items()}
    gate = Gate(task=ask.task, sizes=sizes, with_task=with_task, whole_pixels=whole_pixels)
    fault = first_fault(payload, gate)
    if fault is not None:
        return Invalid(fault)
    for field in ("answer", "region"):
        if not is_storable(payload.get(field, "")):
            return Invalid(f"invalid_{field}")
    region = payload.get("region", "").replace("_", " ")
    boxes: list[Box] = []
    for item in payload.get("boxes", ()):
        if item["view"] not in places:
            return Invalid("view_not_shown")
        x1, y1, x2, y2 = (float(value) for value in item["bbox"])
        boxes.append(Box(image=places[item["view"]], xyxy=(x1, y1, x2, y2), label=region))
    return Answer(text=payload.get("answer"), label=payload.get("class"), boxes=tuple(boxes))


def _refuse(message: str, ask: Ask, codec: str, *, fix: str = "mend the record's target") -> CodecError:
    return CodecError(message, where=f"codec {codec}, task {ask.task}, question {ask.question[:60]!r}", fix=fix)
