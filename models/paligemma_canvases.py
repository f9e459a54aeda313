"""PaliGemma's questions about one canvas: the vision tower sees it once for all of them.

Image and prompt see each other in the language model, so nothing after the projector is the same for two questions.
Each canvas is encoded by itself: products of a batch may round otherwise than those of its parts, and then a sample's
features could depend on which others are beside it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from models.vision_sets import most_of_all

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def share_canvases(model: PreTrainedModel, *, lockstep: bool = False) -> None:
    """Lets a model train on batches that hold each canvas once; see `collators.paligemma`.

    Args:
        model: The model, adapted or not.
        lockstep: Processes hold the weights together (ZeRO-3, FSDP): all run the tower equally often, as often as the one
            with most canvases, on one of their own again if need be.
    """
    inner = next(module for module in model.modules() if hasattr(module, "get_placeholder_mask"))
    inner.register_forward_pre_hook(partial(_encode_canvases, lockstep=lockstep), with_kwargs=True)


def _encode_canvases(
    inner: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], *, lockstep: bool
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Puts the vision features float[B, N, D] of each sample in the place of the pixels of each canvas."""
    places = keywords.pop("canvas_of", None)
    if places is None:
        return None
    canvases = list(keywords.pop("pixel_values").split(1))
    if lockstep:
        # In the backward pass too, of gradients that are 0.
        canvases += canvases[:1] * (most_of_all(len(canvases), canvases[0].device) - len(canvases))
    features = torch.cat([inner.get_image_features(canvas).pooler_output for canvas in canvases])  # type: ignore[operator]
    outputs = {"image": BaseModelOutputWithPooling(pooler_output=features[places])}
    return arguments, {**keywords, "mm_encoder_outputs": outputs}
