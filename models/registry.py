"""The model families: one explicit, lazy table.

Families are named as transformers names their configs (`model_type`).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from collators.base import CollatorClass
from recipes.errors import RecipeError

# Family -> module with load_processor, load_model, adapt, freeze, share_images, keep_features, spare_tower, group_of,
# trainable_by_group, prompt_inputs and last_positions; beside it lies the module of its cost formulas (`models.costs`).
FAMILIES: Final = {"qwen3_vl": "models.qwen3_vl", "paligemma": "models.paligemma"}
COLLATORS: Final = {
    "qwen3_vl": ("collators.qwen3_vl", "Qwen3VLCollator"),
    "paligemma": ("collators.paligemma", "PaliGemmaCollator"),
}


def family_module(family: str) -> ModuleType:
    """The module of a family; the recipe schema has already checked the name.

    Raises:
        RecipeError: The family has none: its models are on a server.
    """
    if family not in FAMILIES:
        raise RecipeError(
            f"models of family {family} are on a server: here they cannot be loaded, nor trained",
            where="model.family",
            fix="ask them with `python -m infer MODEL --engine openai`, or take a recipe of another family",
        )
    return import_module(FAMILIES[family])


def family_collator(family: str) -> CollatorClass:
    """The collator of a family; the recipe schema has already checked the name."""
    module, name = COLLATORS[family]
    collator: CollatorClass = getattr(import_module(module), name)
    return collator
