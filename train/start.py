"""Starting a run from the adapter of another (`adapter.init`): is it one for this encoder and base, and which."""

from __future__ import annotations

from collators.encoder import Encoder
from models.adapters import adapter_folder
from models.provenance import check_base, check_encoder, weights_hash
from recipes.schema import Recipe


def check_start(recipe: Recipe, encoder: Encoder) -> None:
    """Refuses an adapter to start from that was trained with another encoder or on another base.

    Raises:
        UserError: Names what differs.
        DataError: The adapter's folder does not say with which encoder it was trained.
    """
    if recipe.adapter.init is None:
        return
    folder = adapter_folder(recipe.adapter.init)
    check_encoder(
        folder,
        encoder,
        fix="set prompt, images and codec as in the recipe beside the adapter in adapter.init, or adapter.init: null",
    )
    check_base(folder, recipe)


def start_hash(recipe: Recipe) -> str | None:
    """Hash of the weights of the adapter that the run starts from; `None` where it starts anew."""
    return None if recipe.adapter.init is None else weights_hash(adapter_folder(recipe.adapter.init))
