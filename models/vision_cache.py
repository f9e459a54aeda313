"""Vision features of a run: which key a set has, where they are kept, and what worker processes know of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from collators.encoder import Encoder
from collators.image_sets import Features
from models.processes import process_state
from models.registry import family_module
from models.vision_key import FeatureSpace, config_hash, device_name, package_versions, patch_layer, tower_hash
from models.vision_store import DiskStore, FeatureStore, MemoryStore
from recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# In the dataset's folder.
FOLDER = "vision_cache"
_KEY_BYTES = 32


class VisionCache:
    """Features of image sets by key, for the process that computes and for its workers.

    A worker reads a disk by itself. What is in the memory of the process that computes it cannot see, nor need it: that an
    entry is there is enough, and entries are never dropped.

    Args:
        space: What all features of the run have in common.
        store: Where they are kept.
        sets: Largest number of image sets that workers may ask for; 0 without workers.
    """

    def __init__(self, space: FeatureSpace, store: FeatureStore, *, sets: int = 0) -> None:
        self.space = space
        self.store = store
        self._owner = os.getpid()
        self._known = _SharedKeys(sets)

    def computing(self, precision: str) -> VisionCache:
        """The same store for features of the same tower in another precision; see `FeatureSpace`."""
        other = copy(self)
        other.space = replace(self.space, precision=precision)
        return other

    def key(self, contents: Sequence[str], geometry: Mapping[str, Any]) -> str:
        """See `FeatureSpace.key`."""
        return self.space.key(contents, geometry)

    def find(self, key: str) -> Features | None:
        """See `collators.image_sets.KeptFeatures.find`."""
        if os.getpid() == self._owner or isinstance(self.store, DiskStore):
            return self.store.get(key)
        return {} if key in self._known else None

    def get(self, key: str) -> Features | None:
        """See `collators.image_sets.KeptFeatures.get`."""
        return self.store.get(key)

    def put(self, key: str, features: Features) -> None:
        """See `collators.image_sets.KeptFeatures.put`."""
        if self.store.put(key, {name: tensor.cpu() for name, tensor in features.items()}):
            self._known.add(key)


class _SharedKeys:
    """A set of keys that grows, written by one process and read by those that it starts.

    Args:
        capacity: Largest number of keys; further ones are not noted.
    """

    def __init__(self, capacity: int) -> None:
        self._log: Tensor = torch.zeros(capacity, _KEY_BYTES, dtype=torch.uint8)
        self._count: Tensor = torch.zeros(1, dtype=torch.int64)
        for shared in (self._log, self._count):
            shared.share_memory_()  # type: ignore[no-untyped-call]
        self._seen: set[bytes] = set()
        self._read = 0

    def add(self, key: str) -> None:
        count = int(self._count)
        if count < len(self._log) and key not in self:
            self._log[count] = torch.frombuffer(bytearray.fromhex(key), dtype=torch.uint8)
            # Only now does a reader look at it.
            self._count += 1

    def __contains__(self, key: str) -> bool:
        count = int(self._count)
        self._seen |= {bytes(row) for row in self._log[self._read : count].numpy()}
        self._read = count
        return bytes.fromhex(key) in self._seen


def open_vision_cache(
    recipe: Recipe, model: PreTrainedModel, encoder: Encoder, data: Path, *, precision: str = "weights", sets: int = 0
) -> VisionCache | None:
    """The recipe's vision cache; `None` if it has none.

    Args:
        recipe: The recipe.
        model: Its model, adapted or not, whole in this process.
        encoder: Its encoder.
        data: Folder of the dataset.
        precision: See `FeatureSpace`.
        sets: See `VisionCache`.

    Raises:
        UserError: The folder cannot be written.
    """
    if recipe.vision_cache in ("off", "pixels"):
        return None
    store: FeatureStore
    if recipe.vision_cache == "memory":
        store = MemoryStore(_limit(recipe), _say)
    else:
        store = open_store(recipe, data)
    groups = family_module(recipe.model.family).LAYOUT.groups
    space = FeatureSpace(
        image_processor=encoder.parts["image_processor"],
        weights=tower_hash(model, groups["vision"] + groups["projector"]),
        config=config_hash(model),
        attention=str(model.config.vision_config._attn_implementation),
        patches=patch_layer(model),
        precision=precision,
        device=device_name(process_state().device),
        versions=package_versions(),
    )
    return VisionCache(space, store, sets=sets)


def open_store(recipe: Recipe, data: Path) -> DiskStore:
    """The recipe's store on disk, by default in the folder of the dataset.

    Raises:
        UserError: The folder cannot be written.
    """
    return DiskStore(Path(recipe.vision_cache_dir or data / FOLDER), _limit(recipe), _say)


def _limit(recipe: Recipe) -> int:
    return int(recipe.vision_cache_gib * 2**30)


def feature_bytes(model: PreTrainedModel, tokens: int) -> int:
    """Bytes of the features of so many image tokens."""
    levels = len(getattr(model.config.vision_config, "deepstack_visual_indexes", None) or ())
    return tokens * (1 + levels) * int(model.config.get_text_config().hidden_size) * int(model.dtype.itemsize)


def _say(line: str) -> None:
    """For every process: which one meets a damaged file is chance."""
    sys.stderr.write(f"{line}\n")
