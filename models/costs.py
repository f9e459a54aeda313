"""What a forward and backward pass is made of, in the terms that every family's cost formulas share.

A family's formulas are the module `models.<family>_costs` with `skeleton`, `is_quantizable`, `pixels_per_token`,
`activations` and `flops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from collators.base import Length
from models.registry import FAMILIES


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Shape of one forward pass.

    Attributes:
        samples: Number of samples, B.
        width: Tokens of each sample with padding and images, L.
        images: Image tokens of all samples.
        supervised: Tokens with loss of all samples, S.
        pictures: Images per sample.
    """

    samples: int
    width: int
    images: int
    supervised: int
    pictures: int

    @property
    def tokens(self) -> int:
        """All tokens, padding included: B x L."""
        return self.samples * self.width


def longest_batch(lengths: Sequence[Length], samples: int, *, pictures: int) -> MicroBatch:
    """The largest forward pass that any order of the samples can bring together.

    Args:
        lengths: Token counts of each sample.
        samples: Samples per forward pass.
        pictures: Images per sample.
    """
    samples = min(samples, len(lengths))
    return MicroBatch(
        samples=samples,
        width=max(length.total for length in lengths),
        images=sum(sorted((length.images for length in lengths), reverse=True)[:samples]),
        supervised=sum(sorted((length.target for length in lengths), reverse=True)[:samples]),
        pictures=pictures,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Number formats of a pass.

    Attributes:
        compute: Bytes per number in matrix products.
        residual: Bytes per number in the language model's residual stream, the type of its embeddings.
        autocast: Inputs and float32 weights are cast to the compute type product by product.
        on_cpu: CPU kernels; their dropout keeps its mask as numbers, those of GPUs as bytes.
    """

    compute: int
    residual: int
    autocast: bool
    on_cpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes that live at the peak of a forward and backward pass, weights and gradients left out.

    Attributes:
        inputs: Pixels and token ids.
        vision: Kept for the backward pass of the vision tower and the projector.
        language: Kept for the backward pass of the language model, without the head.
        logits: Logits at supervised positions with what their loss and its gradient need.
        block: Gradients in flight in one block's backward pass; under gradient checkpointing with what that block
            recomputes.
    """

    inputs: int
    vision: int
    language: int
    logits: int
    block: int

    @property
    def total(self) -> int:
        """All together; the logits are gone when the first block's turn comes."""
        return self.inputs + self.vision + self.language + max(self.logits, self.block)


def family_costs(family: str) -> ModuleType:
    """The cost formulas of a family; the recipe schema has already checked the name."""
    return import_module(f"{FAMILIES[family]}_costs")
