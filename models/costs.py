"""What a forward and backward pass is made of, in the terms that every family's cost formulas share.

A family's formulas are the module `models.<family>_costs` with `skeleton`, `is_quantizable`, `pixels_per_token`,
`activations` and `flops`; and, where images are put on a canvas, `SIDES`, the sizes that it has checkpoints for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from importlib import import_module
from types import ModuleType

from collators.base import Length
from models.registry import family_module
from recipes.schema import Adapter, FreezeGroup, Recipe

# log-softmax, the gradient of the loss and that of the logits, all float32 and alive at once.
LOGIT_BYTES = 12
# Gradients and casts of the inner width inside one block's backward pass: two float32 tensors or their like, measured.
FLIGHT_BYTES = 8
PIXEL_BYTES = 4
INPUT_BYTES = 4 * 8  # ids, mask, types and labels of a token, int64


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Shape of one forward pass.

    Attributes:
        samples: Number of samples, B.
        width: Tokens of each sample with padding and images, L.
        images: Image tokens of all samples.
        supervised: Tokens with loss of all samples, S.
        image_pairs: Pairs of image tokens of all samples that lie on the same picture.
    """

    samples: int
    width: int
    images: int
    supervised: int
    image_pairs: int

    @property
    def tokens(self) -> int:
        """All tokens, padding included: B x L."""
        return self.samples * self.width


def longest_batch(lengths: Sequence[Length], samples: int) -> MicroBatch:
    """The largest forward pass that any order of the samples can bring together.

    Args:
        lengths: Token counts of each sample.
        samples: Samples per forward pass.
    """
    samples = min(samples, len(lengths))

    def largest(counts: Iterable[int]) -> int:
        return sum(nlargest(samples, counts))

    return MicroBatch(
        samples=samples,
        width=max(length.total for length in lengths),
        images=largest(length.images for length in lengths),
        supervised=largest(length.target for length in lengths),
        image_pairs=largest(length.image_pairs for length in lengths),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Number formats of a pass.

    Attributes:
        compute: Bytes per number in matrix products.
        residual: Bytes per number in the language model's residual stream, the type of its embeddings.
        positions: Bytes per number of a table of learned positions in the vision tower.
        autocast: Inputs and float32 weights are cast to the compute type product by product.
        on_cpu: CPU kernels; their dropout keeps its mask as numbers, those of GPUs as bytes.
    """

    compute: int
    residual: int
    positions: int
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
    """The cost formulas of a family; see `models.registry.family_module`."""
    return import_module(f"{family_module(family).__name__}_costs")


def trained_groups(recipe: Recipe) -> frozenset[FreezeGroup]:
    """Groups whose base weights are trained."""
    if recipe.adapter.kind == "lora":
        return frozenset(recipe.adapter.train_also)
    every: tuple[FreezeGroup, ...] = ("vision", "projector", "language", "embeddings", "head")
    return frozenset(every) - frozenset(recipe.freeze)


def score_bytes(numerics: Numerics) -> int:
    """Eager attention keeps the softmax in float32, and the copy in the compute type that values are weighted with."""
    return 4 if numerics.compute == 4 else 4 + numerics.compute


def score_flight_bytes(numerics: Numerics) -> int:
    """The softmax and its gradient need two float32 tensors of gradients; by then the copy of `score_bytes` is gone."""
    return 8 - (score_bytes(numerics) - 4)


def layer_norm_bytes(numerics: Numerics) -> int:
    """Layer norm runs in float32 under CUDA's autocast, in the compute type otherwise."""
    return 4 if numerics.autocast and not numerics.on_cpu else numerics.compute


def lora_bytes(adapter: Adapter, numerics: Numerics, widths: Sequence[int], *, shared: int) -> int:
    """Bytes per token that LoRA adds to a block.

    Each adapted layer keeps its input after dropout and the rank-wide product; the inputs are shared between layers
    only if neither dropout nor a cast makes a copy.

    Args:
        adapter: The recipe's adapter section.
        numerics: Number formats.
        widths: Input width of each adapted layer.
        shared: Widths of their distinct inputs that nothing else keeps, added up.
    """
    # Under autocast adapters, and so what dropout sees, are float32.
    mask = (4 if numerics.autocast else numerics.compute) if numerics.on_cpu else 1
    mask = mask if adapter.dropout else 0
    own = numerics.autocast or adapter.dropout > 0
    inputs = sum(widths)
    return numerics.compute * (adapter.rank * len(widths) + (inputs if own else shared)) + mask * inputs


def recomputed(recipe: Recipe) -> int:
    """Operations per weight and token that checkpointing repeats: the blocks' forward pass."""
    return 2 if recipe.train.gradient_checkpointing else 0


def block_flops(tokens: int, *, weights: int, pairs: int, width: int, products: int, scores: int) -> int:
    """Operations of a block without its adapters.

    Args:
        tokens: Tokens or patches.
        weights: Matrix elements.
        pairs: Pairs of tokens that see each other, a causal half not taken off.
        width: Channels of all query heads.
        products: Operations per matrix element and token: 2 forward, 2 backward for the input and 2 for the weight.
        scores: Those per element of attention's two products: 2 forward, 4 backward.
    """
    return tokens * weights * products + 2 * pairs * width * scores
