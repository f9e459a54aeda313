"""The image sets of a batch where vision features are kept: features of those that are, pixels of the others.

An image set is what the vision tower sees of one record: its images, or its canvas. A batch has each set once, and says
which one it shows at each place. All sets lie in a few tensors, one after another, as workers hand over batches by as
many open files as they hold tensors.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

Features = dict[str, Tensor]
Pixels = dict[str, Tensor]
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class KeptFeatures(Protocol):
    """Where features are kept: a collator finds them, in a worker process or not; who computes gets and puts them."""

    def key(self, contents: Sequence[str], geometry: Mapping[str, Any]) -> str:
        """The key of an image set; see `models.vision_key.FeatureSpace.key`."""
        ...

    def find(self, key: str) -> Features | None:
        """Kept features; none in them if the process that computes has them; `None` if nobody has."""
        ...

    def get(self, key: str) -> Features | None:
        """Kept features, in the process that computes."""
        ...

    def put(self, key: str, features: Features) -> None:
        """Keeps features, from any device, if there is room."""
        ...


class Shows(Protocol[T_contra]):
    """What a family shows of a record."""

    def identity(self, shown: T_contra, /) -> Hashable:
        """What two records of a batch must share to show the same set."""
        ...

    def describe(self, shown: T_contra, /) -> tuple[list[str], dict[str, Any]]:
        """Contents and geometry of the set, for its key."""
        ...

    def prepare(self, shown: T_contra, /) -> Pixels:
        """What the vision tower takes, by name; sets lie behind one another in the first dimension."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSets:
    """The image sets of a batch.

    Attributes:
        keys: Key of each set.
        shown: Number of the set at each place, in the order of the batch.
        features: Name -> float[..., tokens, D] of the sets whose features came along, one after another.
        tokens: Tokens of each set in `features`; 0 if it is not there.
        pixels: Name -> tensor of the sets that have to be encoded, one after another in the first dimension.
        rows: Of each set, name -> rows in `pixels`; empty if it is not there.
    """

    keys: tuple[str, ...]
    shown: tuple[int, ...]
    features: Features
    tokens: tuple[int, ...]
    pixels: Pixels
    rows: tuple[dict[str, int], ...]

    def found(self) -> list[Features | None]:
        """The features of each set; `None` where they did not come along."""
        lengths = [count for count in self.tokens if count]
        parts = {name: iter(torch.split(values, lengths, dim=-2)) for name, values in self.features.items()}
        return [{name: next(part) for name, part in parts.items()} if count else None for count in self.tokens]

    def inputs(self) -> list[Pixels]:
        """What to encode of each set; nothing of those whose features are kept."""
        parts = {
            name: iter(torch.split(values, [rows[name] for rows in self.rows if rows]))
            for name, values in self.pixels.items()
        }
        return [{name: next(parts[name]) for name in rows} for rows in self.rows]

    def pin_memory(self) -> ImageSets:
        """The same in page-locked memory."""
        return replace(
            self,
            features={name: values.pin_memory() for name, values in self.features.items()},
            pixels={name: values.pin_memory() for name, values in self.pixels.items()},
        )

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> ImageSets:
        """The same on a device."""
        return replace(
            self,
            features={name: values.to(device, non_blocking=non_blocking) for name, values in self.features.items()},
            pixels={name: values.to(device, non_blocking=non_blocking) for name, values in self.pixels.items()},
        )


def collect(kept: KeptFeatures, places: Sequence[T], family: Shows[T]) -> ImageSets:
    """Looks each set of a batch up, and prepares the images of those alone that nobody has.

    Args:
        kept: Where features are kept.
        places: What is shown, in the order of the batch.
        family: How.

    Raises:
        DataError: An image cannot be read.
    """
    keys: dict[Hashable, str] = {}
    sets: dict[str, T] = {}
    for shown in places:
        identity = family.identity(shown)
        if identity not in keys:
            keys[identity] = kept.key(*family.describe(shown))
            # Files may be copies of each other.
            sets.setdefault(keys[identity], shown)
    features = [kept.find(key) for key in sets]
    pixels = [
        family.prepare(shown) if found is None else {} for shown, found in zip(sets.values(), features, strict=True)
    ]
    numbers = {key: number for number, key in enumerate(sets)}
    return ImageSets(
        keys=tuple(sets),
        shown=tuple(numbers[keys[family.identity(shown)]] for shown in places),
        features=_joined([found for found in features if found], dim=-2),
        tokens=tuple(next(iter(found.values())).shape[-2] if found else 0 for found in features),
        pixels=_joined([each for each in pixels if each], dim=0),
        rows=tuple({name: len(values) for name, values in each.items()} for each in pixels),
    )


def prepared(kept: KeptFeatures, places: Sequence[T], family: Shows[T]) -> list[Pixels]:
    """What the vision tower takes of the set at each place, from where prepared pixels are kept, or made now and kept there.

    Args:
        kept: Where prepared pixels are kept.
        places: What is shown, in the order of the batch.
        family: How.

    Raises:
        DataError: An image cannot be read.
    """
    sets: dict[Hashable, Pixels] = {}
    for shown in places:
        identity = family.identity(shown)
        if identity not in sets:
            key = kept.key(*family.describe(shown))
            found = kept.find(key)
            if found is None:
                found = family.prepare(shown)
                kept.put(key, found)
            sets[identity] = found
    return [sets[family.identity(shown)] for shown in places]


def _joined(parts: Sequence[dict[str, Tensor]], *, dim: int) -> dict[str, Tensor]:
    """The tensors of each name behind one another; a single one is not copied."""
    if len(parts) < 2:
        return dict(parts[0]) if parts else {}
    return {name: torch.cat([part[name] for part in parts], dim=dim) for name in parts[0]}
