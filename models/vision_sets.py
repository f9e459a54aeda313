"""From image sets to the model's input: kept features as they are, the others encoded, each set by itself.

Products of a batch may round otherwise than those of its parts. So a set is one call of the vision tower, and its features
are the same bits whichever sets are beside it, now or when they were kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from benchmarks.schema import Record
from collators.base import Collator
from collators.image_sets import Features, ImageSets, KeptFeatures, Pixels

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Under these names a collator hands image sets over, and transformers takes features in the place of pixels.
SETS = "image_sets"
OUTPUTS = "mm_encoder_outputs"


class Tower(Protocol):
    """How a family encodes image sets; a module of it."""

    def encode(self, inner: Any, pixels: Pixels) -> Features:  # noqa: ANN401 - a class of transformers
        """Features of one set: `features` float[N, D] and whatever else the language model takes of them."""
        ...

    def outputs(self, shown: Sequence[Features]) -> dict[str, Any]:
        """What transformers takes in the place of pixels, from the features at each place of a batch."""
        ...

    def blank(self, inner: Any) -> Pixels:  # noqa: ANN401 - a class of transformers
        """The smallest set that can be encoded."""
        ...


class SetEncoder:
    """Encodes the image sets of batches.

    Args:
        model: The model, adapted or not.
        tower: How its family does it.
        kept: Where features are kept.
        lockstep: Processes hold the weights together (ZeRO-3, FSDP): all run the tower equally often, as often as
            the one with most sets to encode, on black pictures if need be.
    """

    def __init__(self, model: PreTrainedModel, tower: Tower, kept: KeptFeatures, *, lockstep: bool = False) -> None:
        # Wrappers of adapters and the class with the head on top have other methods.
        self.inner: Any = next(module for module in model.modules() if hasattr(module, "get_placeholder_mask"))
        self._tower = tower
        self._kept = kept
        self._lockstep = lockstep

    def __call__(self, sets: ImageSets) -> dict[str, Any]:
        """What transformers takes in the place of pixels."""
        device = next(self.inner.parameters()).device
        sets = sets.to(device, non_blocking=True)
        found = sets.found()
        for number, key in enumerate(sets.keys):
            # Another batch, or another process, may have computed them since a worker looked.
            if found[number] is None and (kept := self._kept.get(key)) is not None:
                found[number] = {name: tensor.to(device, non_blocking=True) for name, tensor in kept.items()}
        with torch.no_grad():
            features = self._encoded(sets, found)
        return self._tower.outputs([features[number] for number in sets.shown])

    def hook(
        self,
        inner: nn.Module,  # noqa: ARG002 - the signature is torch's
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """A forward pre-hook of the inner model: puts features in the place of image sets."""
        sets = keywords.pop(SETS, None)
        return None if sets is None else (arguments, {**keywords, OUTPUTS: self(sets)})

    def _encoded(self, sets: ImageSets, found: Sequence[Features | None]) -> list[Features]:
        """The features of all sets; those that are not found are encoded and kept."""
        missing = sum(features is None for features in found)
        calls = most_of_all(missing, next(self.inner.parameters()).device) if self._lockstep else missing
        complete: list[Features] = []
        for key, pixels, features in zip(sets.keys, sets.inputs(), found, strict=True):
            if features is None:
                features = self._tower.encode(self.inner, pixels)
                self._kept.put(key, features)
            complete.append(features)
        for _ in range(calls - missing):
            self._tower.encode(self.inner, self._tower.blank(self.inner))
        return complete


def most_of_all(count: int, device: torch.device) -> int:
    """The largest number among all processes, each of which says its own.

    Args:
        count: Number of this process.
        device: Where this process computes.
    """
    counts = torch.tensor([count], device=device)
    torch.distributed.all_reduce(counts, op=torch.distributed.ReduceOp.MAX)
    return int(counts)


class KeptInputs:
    """Builds the inputs to generate from; see `collators.base.PromptInputs`.

    Args:
        model: The model, adapted or not, whose weights do not change meanwhile.
        tower: How its family encodes image sets.
        kept: Where features are kept.
        collator: Collator without targets that looks them up there.
    """

    def __init__(self, model: PreTrainedModel, tower: Tower, kept: KeptFeatures, collator: Collator) -> None:
        self._encoder = SetEncoder(model, tower, kept)
        self._collator = collator

    @torch.inference_mode()
    def __call__(self, records: Sequence[Record]) -> dict[str, Any]:
        """Builds one batch.

        Raises:
            DataError: An image cannot be read or a sample is over a limit.
        """
        return self.encode(self._collator(records))

    @torch.inference_mode()
    def encode(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The collator's batch with features in the place of image sets."""
        others = {name: value for name, value in batch.items() if name != SETS}
        return {**others, OUTPUTS: self._encoder(batch[SETS])}


def train_on_sets(model: PreTrainedModel, tower: Tower, kept: KeptFeatures, *, lockstep: bool) -> None:
    """Lets a model train on batches of image sets; see `SetEncoder`."""
    encoder = SetEncoder(model, tower, kept, lockstep=lockstep)
    encoder.inner.register_forward_pre_hook(encoder.hook, with_kwargs=True)
