"""The model families: one explicit, lazy table."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

# Family -> module with load_processor, load_model, adapt, freeze, trainable_by_group.
FAMILIES: Final = {"qwen3_vl": "models.qwen3_vl"}


def family_module(family: str) -> ModuleType:
    """The module of a family; the recipe schema has already checked the name."""
    return import_module(FAMILIES[family])
