"""Qwen3-VL's vision features of an image set: what its vision tower gives, and what its language model takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from collators.image_sets import Features, Pixels

if TYPE_CHECKING:
    from transformers import Qwen3VLModel


def encode(inner: Qwen3VLModel, pixels: Pixels) -> Features:
    """Features of all images of a set, encoded together.

    Args:
        inner: The model below the head.
        pixels: `pixel_values` float32[patches, C*T*P*P] and `image_grid_thw` int64[images, 3].

    Returns:
        `features` float[N, D], N tokens of all images in order, and `deepstack` float[levels, N, D].
    """
    found = inner.get_image_features(pixels["pixel_values"], pixels["image_grid_thw"], return_dict=True)
    features = torch.cat(found.pooler_output)
    levels = [torch.cat(level) for level in found.deepstack_features]
    return {
        "features": features,
        "deepstack": torch.stack(levels) if levels else features.new_empty(0, *features.shape),
    }


def outputs(shown: Sequence[Features]) -> dict[str, Any]:
    """What transformers takes in the place of pixels, from the features of the set at each place of a batch."""
    levels = range(len(shown[0]["deepstack"]))
    found = BaseModelOutputWithDeepstackFeatures(
        pooler_output=tuple(each["features"] for each in shown),
        deepstack_features=[tuple(each["deepstack"][level] for each in shown) for level in levels],
    )
    return {"image": found}


def blank(inner: Qwen3VLModel) -> Pixels:
    """A grey picture of one token."""
    vision, device = inner.config.vision_config, next(inner.parameters()).device
    side = vision.spatial_merge_size
    values = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return {
        "pixel_values": torch.zeros(side * side, values, device=device),
        "image_grid_thw": torch.tensor([[1, side, side]], device=device),
    }
