"""Bytes that autograd keeps of a forward pass through Qwen3-VL, from the model's shape.

Our own count of the tensors of transformers' implementation; `tests/train/test_activations.py` holds it to what
`torch.autograd.graph.saved_tensors_hooks` and PyTorch's memory profiler see. Left out is what is small beside a hidden
state per token: rotary tables, inverse deviations of norms, softmax sums, masks of one byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.costs import (
    FLIGHT_BYTES,
    INPUT_BYTES,
    LOGIT_BYTES,
    PIXEL_BYTES,
    Activations,
    MicroBatch,
    Numerics,
    layer_norm_bytes,
    score_bytes,
    trained_groups,
)
from models.language_costs import block_bytes, language_bytes
from models.qwen3_vl_shape import Shape
from recipes.schema import FreezeGroup, Recipe

if TYPE_CHECKING:
    from transformers import Qwen3VLConfig


def activations(config: Qwen3VLConfig, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> Activations:
    """Bytes of activations at the peak of one forward and backward pass.

    Without checkpointing every block keeps its tensors; with it each keeps its input, and one block at a time is
    recomputed.
    """
    shape = Shape.of(config)
    language = shape.language
    patches = batch.images * shape.patches_per_token
    block = block_bytes(
        language,
        recipe,
        batch,
        numerics,
        scores=score_bytes(numerics) if recipe.model.attention == "eager" else 0,
        # The kernel needs no mask if nothing is padded.
        masked=recipe.model.attention == "sdpa" and batch.samples > 1,
    )
    flight = batch.tokens * language.inner * FLIGHT_BYTES
    if recipe.train.gradient_checkpointing:
        flight += block
    vision, vision_flight = _vision(shape, recipe, batch, numerics)
    return Activations(
        inputs=patches * shape.patch_pixels * PIXEL_BYTES + batch.tokens * INPUT_BYTES,
        vision=vision,
        language=language_bytes(language, recipe, batch, numerics, block=block),
        logits=batch.supervised * language.vocabulary * LOGIT_BYTES,
        block=max(flight, vision_flight),
    )


def _vision(shape: Shape, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> tuple[int, int]:
    """Bytes that tower and mergers keep, and those in flight in one block's backward pass."""
    trained = trained_groups(recipe)
    patches = batch.images * shape.patches_per_token
    mergers = _mergers(shape, trained, patches, numerics)
    if "vision" not in trained:
        return mergers, 0
    block = _vision_block(shape, recipe, batch, numerics)
    flight = patches * shape.vision.intermediate_size * FLIGHT_BYTES
    kept = block
    if recipe.train.gradient_checkpointing:
        kept = patches * shape.vision.hidden_size * numerics.compute
        flight += block
    pixels = patches * shape.patch_pixels * numerics.compute if numerics.autocast else 0
    return shape.vision.depth * kept + mergers + pixels, flight


def _vision_block(shape: Shape, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> int:
    """Bytes that one trained vision block keeps.

    Per patch, for width w and inner width i: the inputs of two norms; the inputs of four matrices; queries and keys
    after rotation, the product they came from with the values in it, and attention's result.
    """
    width, inner = shape.vision.hidden_size, shape.vision.intermediate_size
    patches = batch.images * shape.patches_per_token
    total = patches * (2 * layer_norm_bytes(numerics) * width + numerics.compute * (9 * width + 2 * inner))
    if recipe.model.attention == "eager":
        pairs = batch.image_pairs * shape.patches_per_token**2
        total += pairs * shape.vision.num_heads * score_bytes(numerics)
    return int(total)


def _mergers(shape: Shape, trained: frozenset[FreezeGroup], patches: int, numerics: Numerics) -> int:
    """Bytes that the mergers keep: norm and activation inputs, and the inputs of their matrices if trained."""
    if not trained & {"vision", "projector"}:
        return 0
    products = 3 if "projector" in trained else 1
    return int(
        shape.mergers * patches * shape.vision.hidden_size * (layer_norm_bytes(numerics) + products * numerics.compute)
    )
