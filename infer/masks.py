"""Answers with the masks that a model's mask codes stand for."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.schema import Answer, Ask
from collators.codecs.base import Decode, Invalid
from collators.codecs.seg_tokens import SegTokens
from models.seg_decoder import load_mask_decoder, native_masks


def decode_with_masks(codec: SegTokens, weights: Path) -> Decode:
    """Reads texts as the codec does, and draws the mask of each box in native pixels.

    Args:
        codec: The codec of the texts.
        weights: File of the mask decoder's weights.

    Raises:
        UserError: The file does not hold them; see `models.seg_decoder.load_mask_decoder`.
    """
    decoder = load_mask_decoder(weights)

    def decode(text: str, ask: Ask) -> Answer | Invalid:
        answer, coded = codec.decode(text, ask), codec.coded_masks(text, ask)
        if isinstance(answer, Invalid) or isinstance(coded, Invalid):
            return answer
        return msgspec.structs.replace(answer, masks=native_masks(decoder, coded, ask.images))

    return decode
