"""Prepared pixels that are kept on disk, for vision towers that are trained: their features change, their input does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collators.encoder import Encoder
from collators.image_sets import Features
from models.vision_cache import open_store
from models.vision_key import PIXEL_RULE, json_hash, package_versions
from models.vision_store import DiskStore
from recipes.schema import Recipe


class PixelCache:
    """Pixels of image sets by key; any process finds them and keeps them (`collators.image_sets.KeptFeatures`).

    Each process counts what it has kept itself, so that together they may pass the bound by that.

    Args:
        image_processor: Hash of the image processor's settings.
        store: Where they are kept.
    """

    def __init__(self, image_processor: str, store: DiskStore) -> None:
        self.store = store
        self._shared = {"image_processor": image_processor, "versions": package_versions(), "pixel_rule": PIXEL_RULE}

    def key(self, contents: Sequence[str], geometry: Mapping[str, Any]) -> str:
        """SHA-256 over the contents of the files, how they are shown, and what makes pixels of them."""
        return json_hash({**self._shared, "contents": list(contents), "geometry": dict(geometry)})

    def find(self, key: str) -> Features | None:
        """Kept pixels; `None` if there are none."""
        return self.store.get(key)

    def get(self, key: str) -> Features | None:
        """As `find`."""
        return self.store.get(key)

    def put(self, key: str, features: Features) -> None:
        """Keeps pixels if there is room."""
        self.store.put(key, features)


def open_pixel_cache(recipe: Recipe, encoder: Encoder, data: Path) -> PixelCache | None:
    """The cache of prepared pixels that a recipe asks for; `None` if it asks for none.

    Args:
        recipe: The recipe.
        encoder: Its encoder.
        data: Folder of the dataset, where the cache is by default.

    Raises:
        UserError: The folder cannot be written.
    """
    if recipe.vision_cache != "pixels":
        return None
    return PixelCache(encoder.parts["image_processor"], open_store(recipe, data))
