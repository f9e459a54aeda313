"""PaliGemma's own language for masks: behind the location codes of each box, 16 `<segNNN>` codes.

    <loc0261><loc0635><loc0357><loc0833><seg017><seg101>...<seg003> left knee ; The left knee is hot.

All else is as in `loc_tokens`. The codes are entries 0..127 of a codebook, row by row on a grid of 4 x 4 over the
box; `models.seg_decoder` makes a mask of them. Every object has exactly 16, so an object without a mask makes a
text invalid (`invalid_codes`). Source of the form: big_vision, `pp/proj/paligemma/segmentation.py`.

An `Answer` has no place for codes. So `decode` gives class, boxes and sentence, and `coded_masks` reads the codes
of the same text. Writing goes one way only: which codes stand for a mask is decided by the published encoder, which
is not part of this project, so `encode` takes them from the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.schema import XYXY, Answer, Ask
from collators.codecs.base import CodecError, Invalid
from collators.codecs.canvas_boxes import numbers_to_canvas
from collators.codecs.code_fields import LAST_MASK_CODE
from collators.codecs.loc_tokens import LocTokens

MASK_CODES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedMask:
    """A mask as a text gives it.

    Attributes:
        image: Index into the question's images.
        xyxy: Where the whole grid of codes stands, in native pixels of that image: the box as written. Unlike the
            answer's box it is not clipped to the image, which would squeeze the mask.
        codes: 16 codebook entries, row by row.
        label: The label of the box.
    """

    image: int
    xyxy: XYXY
    codes: tuple[int, ...]
    label: str | None


class SegTokens(LocTokens):
    """Class, boxes as location codes with mask codes and labels, sentence.

    Args:
        canvas: The recipe's canvas, on which the location codes are places.
    """

    name = "seg_tokens"
    mask_codes = MASK_CODES

    def encode(self, answer: Answer, ask: Ask, codes: Sequence[tuple[int, ...]] = ()) -> str:
        """Writes the text.

        Args:
            answer: The answer; its masks are what `codes` stand for, and are not looked at.
            ask: The question.
            codes: For each box of the answer its 16 mask codes.

        Raises:
            CodecError: As `LocTokens.encode`; the answer has boxes or masks, but codes are missing, or are no 16
                numbers of 0..127.
        """
        if len(codes) != len(answer.boxes) or (answer.masks and not codes):
            raise CodecError(
                f"the answer has {len(answer.boxes)} boxes and {len(answer.masks)} masks, mask codes are given for "
                f"{len(codes)} boxes; which codes stand for a mask is decided by the published encoder, not here",
                where=self.where(ask),
                fix="give the codes of each box, or use the codec loc_tokens, which writes boxes alone",
            )
        for number, behind in enumerate(codes):
            if len(behind) != MASK_CODES or not all(0 <= code <= LAST_MASK_CODE for code in behind):
                raise CodecError(
                    f"the mask codes of box {number + 1} are {list(behind)}",
                    where=self.where(ask),
                    fix=f"give {MASK_CODES} numbers from 0 to {LAST_MASK_CODE}",
                )
        return self.write(answer, ask, codes)

    def coded_masks(self, text: object, ask: Ask) -> tuple[CodedMask, ...] | Invalid:
        """The masks of a text, one for each box of `decode` and invalid for the same reasons; never raises."""
        read = self.read(text, ask)
        if isinstance(read, Invalid):
            return read
        fields, boxes = read
        if not boxes:
            return ()
        layout = self.layout(ask)
        masks: list[CodedMask] = []
        for item, box in zip(fields.objects, boxes, strict=True):
            panel = layout.panel(box.image)
            x1, y1, x2, y2 = numbers_to_canvas(item.grid, layout)
            xyxy = (x1 - panel.x, y1 - panel.y, x2 - panel.x, y2 - panel.y)
            masks.append(CodedMask(image=box.image, xyxy=xyxy, codes=item.codes, label=item.label))
        return tuple(masks)
