"""What the language model inside a family keeps for its backward pass and computes, from its shape.

Both families have one of the same build (Qwen3 in Qwen3-VL, Gemma in PaliGemma): blocks of attention with grouped
heads and a gated unit, RMS norms, one matrix for the head. Bytes are our own count of the tensors of transformers'
implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from collators.base import Length
from models.costs import (
    FLIGHT_BYTES,
    MicroBatch,
    Numerics,
    block_flops,
    lora_bytes,
    recomputed,
    score_flight_bytes,
    trained_groups,
)
from recipes.schema import Recipe, Role

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Shape of a language model; widths in channels.

    Attributes:
        hidden: Width of the residual stream.
        inner: Width of the gated unit.
        query: Width of all query heads.
        key: Width of all key heads, and of all value heads.
        heads: Number of query heads.
        key_heads: Number of key heads, and of value heads.
        layers: Number of blocks.
        vocabulary: Number of tokens.
        norms: Norms of the residual's width in a block.
        head_norms: Whether queries and keys are normed too, head by head.
        float_norms: Whether norms multiply with their weight in float32 and then return to the type of their input;
            otherwise they return to it first, and a trained weight widens the result.
    """

    hidden: int
    inner: int
    query: int
    key: int
    heads: int
    key_heads: int
    layers: int
    vocabulary: int
    norms: int
    head_norms: bool
    float_norms: bool

    @classmethod
    def of(cls, text: PreTrainedConfig, *, norms: int, head_norms: bool, float_norms: bool) -> Language:
        """The shape in a checkpoint's config of the language model."""
        return cls(
            hidden=text.hidden_size,
            inner=text.intermediate_size,
            query=text.num_attention_heads * text.head_dim,
            key=text.num_key_value_heads * text.head_dim,
            heads=text.num_attention_heads,
            key_heads=text.num_key_value_heads,
            layers=text.num_hidden_layers,
            vocabulary=text.vocab_size,
            norms=norms,
            head_norms=head_norms,
            float_norms=float_norms,
        )

    @property
    def block_weights(self) -> int:
        """Matrix elements of one block."""
        return self.hidden * (2 * self.query + 2 * self.key + 3 * self.inner)

    def products(self, role: Role) -> list[tuple[int, int]]:
        """Input and output width of each of a block's linear layers with a role."""
        hidden, query, key, inner = self.hidden, self.query, self.key, self.inner
        if role == "attention":
            return [(hidden, query), (hidden, key), (hidden, key), (query, hidden)]
        return [(hidden, inner), (hidden, inner), (inner, hidden)]

    def inputs(self, role: Role) -> list[int]:
        """Input width of each of a block's linear layers with a role."""
        return [width for width, _ in self.products(role)]


def block_bytes(
    shape: Language, recipe: Recipe, batch: MicroBatch, numerics: Numerics, *, scores: int, masked: bool
) -> int:
    """Bytes that one block keeps.

    Args:
        shape: The language model.
        recipe: The run.
        batch: Shape of the pass.
        numerics: Number formats.
        scores: Bytes that attention keeps per pair of tokens and head; 0 for kernels that make no such matrix.
        masked: A kernel without scores is given a mask, which it turns into numbers of the compute type.
    """
    # Kernels repeat keys and values by themselves if they need no mask; a single head is repeated without a copy.
    repeated = scores or (masked and shape.key_heads > 1)
    attention = _attention_bytes(shape, recipe, numerics, key=shape.query if repeated else shape.key)
    pairs = batch.samples * batch.width**2
    total = batch.tokens * (attention + _unit_bytes(shape, recipe, numerics))
    return total + pairs * (shape.heads * scores + (numerics.compute if masked else 0))


def _attention_bytes(shape: Language, recipe: Recipe, numerics: Numerics, *, key: int) -> int:
    """Bytes per token that attention keeps, its scores left out, with keys and values of `key` channels.

    Norms keep their input in float32, those of queries and keys too; then operands and result. Trained weights add
    what they were multiplied with; if norms hand on something wider than the compute type, that is one cast copy per
    matrix.
    """
    heads = shape.query + shape.key if shape.head_norms else 0
    per_token = _norm_bytes(shape, recipe, numerics) + 4 * heads + numerics.compute * 2 * (shape.query + key)
    if "language" in trained_groups(recipe):
        per_token += numerics.compute * ((3 if _norms_widen(shape, numerics) else 1) * shape.hidden + heads)
    if "attention" in _adapted(recipe):
        # Attention's result is kept anyway.
        per_token += lora_bytes(recipe.adapter, numerics, shape.inputs("attention"), shared=shape.hidden)
    return per_token


def _unit_bytes(shape: Language, recipe: Recipe, numerics: Numerics) -> int:
    """Bytes per token that the gated unit keeps: the inputs of norms, gate, its activation and what it gates."""
    # 4-bit layers hand their result back in the type of their input.
    unit = numerics.residual if recipe.model.quantization == "nf4" else numerics.compute
    per_token = _norm_bytes(shape, recipe, numerics) + unit * 3 * shape.inner
    if "language" in trained_groups(recipe):
        per_token += numerics.compute * ((2 if _norms_widen(shape, numerics) else 1) * shape.hidden + shape.inner)
    if "mlp" in _adapted(recipe):
        shared = shape.hidden + shape.inner
        per_token += lora_bytes(recipe.adapter, numerics, shape.inputs("mlp"), shared=shared)
    return per_token


def _norm_bytes(shape: Language, recipe: Recipe, numerics: Numerics) -> int:
    """Bytes per token that half of a block's norms keep: their input in float32, and what trained weights multiply."""
    trained = "language" in trained_groups(recipe)
    return shape.norms // 2 * shape.hidden * (4 + (_norm_product(shape, numerics) if trained else 0))


def _norms_widen(shape: Language, numerics: Numerics) -> bool:
    """Whether trained norms hand on something wider than the compute type."""
    return numerics.residual > numerics.compute if shape.float_norms else numerics.autocast


def _adapted(recipe: Recipe) -> tuple[Role, ...]:
    return recipe.adapter.roles if recipe.adapter.kind == "lora" else ()


def flight_bytes(shape: Language, recipe: Recipe, batch: MicroBatch, numerics: Numerics, *, eager: bool) -> int:
    """Bytes of gradients and casts in flight in one block's backward pass.

    The gated unit's turn is first; when it is attention's, what the unit kept is gone, but scores need room for their
    gradients.
    """
    unit = batch.tokens * shape.inner * FLIGHT_BYTES
    if not eager:
        return unit
    scores = batch.samples * batch.width**2 * shape.heads * score_flight_bytes(numerics)
    return max(unit, scores - batch.tokens * _unit_bytes(shape, recipe, numerics))


def language_bytes(shape: Language, recipe: Recipe, batch: MicroBatch, numerics: Numerics, *, block: int) -> int:
    """Bytes that the blocks keep, given those of one; with the last norm and the head's input."""
    kept = batch.tokens * shape.hidden * numerics.residual if recipe.train.gradient_checkpointing else block
    trained = "language" in trained_groups(recipe)
    last = batch.tokens * shape.hidden * (4 + (_norm_product(shape, numerics) if trained else 0))
    return shape.layers * kept + last + batch.supervised * shape.hidden * numerics.compute


def _norm_product(shape: Language, numerics: Numerics) -> int:
    """Bytes per number of what a norm multiplies with its weight."""
    return 4 if shape.float_norms else numerics.residual


def language_flops(shape: Language, recipe: Recipe, length: Length, *, tied: bool) -> int:
    """Operations of one sample's way through the blocks and the head, forward and backward.

    Args:
        shape: The language model.
        recipe: The run: what is trained, and whether blocks are recomputed.
        length: Token counts of the sample.
        tied: The head's matrix is that of the embeddings, and trained with them.
    """
    trained = trained_groups(recipe)
    again = recomputed(recipe)
    lora = [sum(widths) for role in _adapted(recipe) for widths in shape.products(role)]
    block = block_flops(
        length.total,
        weights=shape.block_weights,
        pairs=length.total**2,
        width=shape.query,
        products=4 + again + 2 * ("language" in trained),
        scores=6 + again,
    )
    block += length.total * (6 + again) * recipe.adapter.rank * sum(lora)
    head = 4 + 2 * (("embeddings" if tied else "head") in trained)
    return shape.layers * block + length.target * shape.hidden * shape.vocabulary * head
