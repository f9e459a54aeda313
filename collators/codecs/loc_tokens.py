"""PaliGemma's own language for boxes: four `<locNNNN>` codes on the canvas that the model sees.

| task           | text                                                                                        |
|----------------|---------------------------------------------------------------------------------------------|
| `vqa`          | `yes ; The left knee is hot.`                                                               |
| `grounding`    | `<loc0261><loc0123><loc0357><loc0222> left knee ; <loc0266><loc0635><loc0360><loc0833> left knee` |
| `grounded_vqa` | `abnormal ; <loc...> left knee ; <loc...> left knee ; The left knee is hot.`                |

The view of a box is the panel that it lies on. Tasks of other benchmarks are written likewise, with whatever
class, boxes and text an answer has (`code_fields` has the rules). The class directly follows the prompt. Masks
and reasoning are not written. `canvas_boxes` states what a box loses.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.canvas import Layout, plan_layout
from benchmarks.errors import DataError
from benchmarks.schema import Answer, Ask, Box
from collators.codecs.base import ClosedForm, CodecError, Invalid
from collators.codecs.box_grammar import BoxGrammar, box_grammar
from collators.codecs.canvas_boxes import box_to_numbers, canvas_to_native, numbers_to_canvas
from collators.codecs.code_fields import (
    SEPARATOR,
    Coded,
    Fields,
    read_fields,
    scintiground_classes,
    write_codes,
    write_fields,
)
from recipes.inputs import Canvas


class LocTokens:
    """Class, boxes as location codes with their labels, sentence.

    Args:
        canvas: The recipe's canvas, on which the codes are places.

    Attributes:
        mask_codes: How many mask codes follow the location codes of each box.
    """

    name = "loc_tokens"
    tasks: tuple[str, ...] | None = None
    mask_codes = 0

    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the text.

        Raises:
            CodecError: Nothing to write; words that would be read back as something else; a box outside its image;
                images that do not fit the canvas.
        """
        return self.write(answer, ask, [()] * len(answer.boxes))

    def decode(self, text: object, ask: Ask) -> Answer | Invalid:
        """Reads the text; never raises. Boxes that lie on no view, or on several, make it invalid."""
        read = self.read(text, ask)
        if isinstance(read, Invalid):
            return read
        fields, boxes = read
        return Answer(text=fields.text, label=fields.label, boxes=boxes)

    def write(self, answer: Answer, ask: Ask, codes: Sequence[tuple[int, ...]]) -> str:
        """The text with the given mask codes behind each box, one tuple a box.

        Raises:
            CodecError: As `encode`.
        """
        objects: tuple[Coded, ...] = ()
        if answer.boxes:
            layout = self.layout(ask)
            objects = tuple(
                Coded(grid=self.numbers(box, layout, ask), codes=behind, label=(box.label or "").strip() or None)
                for box, behind in zip(answer.boxes, codes, strict=True)
            )
        return write_fields(Fields(label=answer.label, objects=objects, text=answer.text), ask, codec=self.name)

    def read(self, text: object, ask: Ask) -> tuple[Fields, tuple[Box, ...]] | Invalid:
        """What the text says, and the box of each of its objects in native pixels; never raises."""
        fields = read_fields(text, ask, mask_codes=self.mask_codes)
        if isinstance(fields, Invalid):
            return fields
        boxes: list[Box] = []
        if fields.objects:
            try:
                layout = self.layout(ask)
            except CodecError:
                return Invalid("no_canvas")
            for item in fields.objects:
                box = read_box(item, layout)
                if isinstance(box, Invalid):
                    return box
                boxes.append(box)
        return fields, tuple(boxes)

    def closed_form(self, ask: Ask) -> ClosedForm | None:
        """The class of a closed ScintiGround question, directly after the prompt.

        None for any other question: nothing follows a class that is the whole answer.
        """
        labels = scintiground_classes(ask)
        return ClosedForm(labels=labels, opening="", closing=SEPARATOR, text_follows=True) if labels else None

    def class_offset(self, text: str, ask: Ask) -> int | None:  # noqa: ARG002 - the protocol's arguments
        """0: the class comes first."""
        return 0 if scintiground_classes(ask) else None

    def takes_object(self, text: str, ask: Ask) -> bool:
        """Whether an object may follow directly on the beginning of an answer: then both can be read together."""
        one = Coded(grid=(0, 0, 1, 1), codes=(0,) * self.mask_codes)
        return isinstance(read_fields(text + write_codes(one), ask, mask_codes=self.mask_codes), Fields)

    def grammar(self, ask: Ask) -> BoxGrammar:
        """Which location numbers make up a box that this codec reads.

        Raises:
            CodecError: The question's images do not fit the plan.
        """
        return box_grammar(self.layout(ask))

    def layout(self, ask: Ask) -> Layout:
        """The canvas of a question.

        Raises:
            CodecError: Its images do not fit the plan.
        """
        try:
            return plan_layout(self.canvas, ask.images)
        except DataError as error:
            raise CodecError(error.message, where=self.where(ask), fix=error.fix) from error

    def numbers(self, box: Box, layout: Layout, ask: Ask) -> tuple[int, int, int, int]:
        """The grid numbers of a box, see `canvas_boxes`; errors say which question."""
        if not 0 <= box.image < len(ask.images):
            raise CodecError(
                f"a box lies on image {box.image}, the question has {len(ask.images)}", where=self.where(ask)
            )
        try:
            return box_to_numbers(box, layout)
        except CodecError as error:
            raise CodecError(error.message, where=self.where(ask), fix=error.fix) from error

    def where(self, ask: Ask) -> str:
        """Codec, task and question, for error messages."""
        return f"codec {self.name}, task {ask.task}, question {ask.question[:60]!r}"


def read_box(item: Coded, layout: Layout) -> Box | Invalid:
    """The box of an object in native pixels of its image, or why it has none."""
    x1, y1, x2, y2 = item.grid
    if not (x1 < x2 and y1 < y2):
        return Invalid("non_increasing_box")
    located = canvas_to_native(numbers_to_canvas(item.grid, layout), layout)
    if isinstance(located, str):
        return Invalid(located)
    image, xyxy = located
    return Box(image=image, xyxy=xyxy, label=item.label)
