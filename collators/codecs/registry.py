"""The codecs by name."""

from __future__ import annotations

import difflib

from benchmarks.predictions import Manifest
from collators.codecs.base import Codec
from collators.codecs.bbox_2d import Bbox2d
from collators.codecs.loc_tokens import LocTokens
from collators.codecs.plain import Plain
from collators.codecs.scintiground import ScintigroundJson, ScintigroundOldJson, ScintigroundTags
from collators.codecs.scintiground_class_first import ScintigroundClassFirst
from collators.codecs.seg_tokens import SegTokens
from collators.codecs.sgmri import SgmriAnswerFirst, SgmriJson
from collators.codecs.sgmri_text import SgmriText
from recipes.errors import UserError
from recipes.inputs import Canvas

_CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        ScintigroundJson(),
        ScintigroundClassFirst(),
        ScintigroundTags(),
        ScintigroundOldJson(),
        SgmriJson(),
        SgmriAnswerFirst(),
        SgmriText(),
        Bbox2d(),
        Plain(),
    )
}


_ON_CANVAS: dict[str, type[LocTokens]] = {codec.name: codec for codec in (LocTokens, SegTokens)}
NAMES = (*_CODECS, *_ON_CANVAS)


def get_codec(name: str, canvas: Canvas | None = None) -> Codec:
    """The codec of that name.

    Args:
        name: As recipes name it.
        canvas: The recipe's canvas, on which some codecs write places; the others do not look at it.

    Raises:
        UserError: There is none; the message lists the names and the nearest one. Or it needs a canvas.
    """
    if name in _CODECS:
        return _CODECS[name]
    if name in _ON_CANVAS:
        if canvas is None:
            raise UserError(
                f"codec {name} writes places on a canvas, and none is known",
                fix="take it from the recipe of the run: the section canvas",
            )
        return _ON_CANVAS[name](canvas)
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"unknown codec {name!r}{hint}", fix=f"the codecs are {', '.join(NAMES)}")


def codec_of_run(manifest: Manifest) -> Codec:
    """The codec that wrote the targets and read the texts of a prediction folder.

    Raises:
        UserError: There is none of that name, or the folder does not say on which canvas it wrote.
    """
    canvas = (manifest.recipe or {}).get("canvas")
    return get_codec(manifest.codec, None if canvas is None else Canvas.model_validate(canvas))
