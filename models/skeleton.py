"""A recipe's model without memory behind its weights: names, shapes and what is trained, for cost formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from models.registry import family_module
from recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def skeleton(recipe: Recipe) -> tuple[PreTrainedConfig, nn.Module]:
    """The checkpoint's config, and the recipe's model on the device `meta`.

    Raises:
        RecipeError: The checkpoint's config cannot be read, is of another family, or the recipe freezes or adapts
            what the model does not have.
    """
    from transformers import AutoModelForImageTextToText

    family = family_module(recipe.model.family)
    config = family.load_config(recipe.model)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    family.freeze(model, recipe.freeze)
    # Where an adapter starts from does not change what it costs.
    return config, family.adapt(model, recipe.adapter.model_copy(update={"init": None}), seed=recipe.train.seed)


def is_quantizable(name: str, parameter: nn.Parameter) -> bool:
    """Whether nf4 would store a weight in 4 bits: the base's matrices in the language model's blocks."""
    return ".language_model.layers." in name and parameter.dim() == 2 and ".lora_" not in name
