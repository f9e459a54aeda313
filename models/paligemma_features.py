"""PaliGemma's inputs with vision features in the place of pixels, computed once per canvas.

A patient's questions share their canvas, but lie far apart in a benchmark's order, so features are kept. Every canvas
is encoded by itself: products of a batch may round otherwise than those of its parts, and then a text could depend on
which questions came before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.schema import Record
from collators.image_sets import Features, Pixels
from collators.paligemma import PaliGemmaCollator, canvas_key

if TYPE_CHECKING:
    from transformers import PaliGemmaModel, PreTrainedModel

# Of features that are kept, on the model's device: some 1,000 canvases of PaliGemma-3B-224 in 16 bits, 250 of 448.
KEPT_BYTES = 2**30


class CanvasFeatures:
    """Builds the inputs of a batch from a model whose weights do not change meanwhile.

    Args:
        model: The model, adapted or not, in evaluation mode on its device.
        collator: Collator without targets.
    """

    def __init__(self, model: PreTrainedModel, collator: PaliGemmaCollator) -> None:
        # An adapter's wrapper has no such method.
        self._encoder = next(module for module in model.modules() if hasattr(module, "get_image_features"))
        self._collator = collator
        self._kept: OrderedDict[Hashable, Tensor] = OrderedDict()

    @torch.inference_mode()
    def __call__(self, records: Sequence[Record]) -> dict[str, Any]:
        """Builds one batch.

        Returns:
            What the collator's `tokens` gives, and `mm_encoder_outputs`, transformers' place for features that exist
            already: under `image` an output whose `pooler_output` is float[B, N, D], N image tokens of width D.

        Raises:
            DataError: An image cannot be read or a sample is over a limit.
        """
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        tokens = self._collator.tokens(records)
        features = torch.cat([self._features(record) for record in records])
        return {**tokens, "mm_encoder_outputs": {"image": BaseModelOutputWithPooling(pooler_output=features)}}

    def _features(self, record: Record) -> Tensor:
        """float[1, N, D] of a record's canvas."""
        key = canvas_key(record)
        found = self._kept.get(key)
        if found is None:
            weight = next(self._encoder.parameters())
            pixels = self._collator.canvases([record])[0].to(weight.device, weight.dtype)
            found = self._encoder.get_image_features(pixels).pooler_output
            self._kept[key] = found
            while len(self._kept) * found.nbytes > KEPT_BYTES:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return found


def encode(inner: PaliGemmaModel, pixels: Pixels) -> Features:
    """Features of a canvas.

    Args:
        inner: The model below the head.
        pixels: `pixel_values` float32[1, 3, S, S].

    Returns:
        `features` float[N, D], N image tokens.
    """
    return {"features": inner.get_image_features(pixels["pixel_values"]).pooler_output[0]}


def outputs(shown: Sequence[Features]) -> dict[str, Any]:
    """What transformers takes in the place of pixels, from the features of the canvas at each place of a batch."""
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    return {"image": BaseModelOutputWithPooling(pooler_output=torch.stack([each["features"] for each in shown]))}


def blank(inner: PaliGemmaModel) -> Pixels:
    """A grey canvas."""
    side = inner.config.vision_config.image_size
    return {"pixel_values": torch.zeros(1, 3, side, side, device=next(inner.parameters()).device)}
