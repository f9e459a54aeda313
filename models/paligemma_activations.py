"""Bytes that autograd keeps of a forward pass through PaliGemma of either generation, from the model's shape.

As `models.qwen3_vl_activations`, with the same tests and the same things left out. A sample shows one picture, its
canvas, however many images its record has, and every patch of it is a token.
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
    lora_bytes,
    score_bytes,
    score_flight_bytes,
    trained_groups,
)
from models.language_costs import block_bytes, flight_bytes, language_bytes
from models.paligemma_shape import Shape, language_attention, tower_is_passed
from recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PaliGemmaConfig


def activations(config: PaliGemmaConfig, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> Activations:
    """Bytes of activations at the peak of one forward and backward pass.

    Without checkpointing every block keeps its tensors; with it each keeps its input, all keep the masks, and one
    block at a time is recomputed.
    """
    shape = Shape.of(config)
    eager = language_attention(recipe.model, config) == "eager"
    scores = score_bytes(numerics) + numerics.compute * shape.capped_scores if eager else 0
    # Image and prompt see each other, which no kernel does without a mask.
    block = block_bytes(shape.language, recipe, batch, numerics, scores=scores, masked=not eager)
    language = language_bytes(shape.language, recipe, batch, numerics, block=block)
    flight = flight_bytes(shape.language, recipe, batch, numerics, eager=eager)
    if recipe.train.gradient_checkpointing:
        language += shape.masks * batch.samples * batch.width**2 * (numerics.residual if eager else 1)
        flight += block
    vision, vision_flight = _vision(shape, recipe, batch, numerics)
    logits = LOGIT_BYTES + numerics.compute * shape.capped_logits
    return Activations(
        inputs=batch.images * shape.patch_pixels * PIXEL_BYTES + batch.tokens * INPUT_BYTES,
        vision=vision,
        language=language,
        logits=batch.supervised * shape.language.vocabulary * logits,
        # The vision tower's turn comes when the language model's tensors are gone.
        block=max(flight, vision_flight - language),
    )


def _vision(shape: Shape, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> tuple[int, int]:
    """Bytes that tower and projector keep, and those in flight in one block's backward pass."""
    trained = trained_groups(recipe)
    patches = batch.images
    projector = patches * shape.width * numerics.compute if "projector" in trained else 0
    if not tower_is_passed(recipe):
        return projector, 0
    scores = 0
    if recipe.model.attention == "eager":
        scores = batch.image_pairs * shape.heads
    block = patches * _vision_block(shape, recipe, numerics) + scores * score_bytes(numerics)
    flight = max(patches * shape.inner * FLIGHT_BYTES, scores * score_flight_bytes(numerics))
    kept = block
    if recipe.train.gradient_checkpointing:
        kept = patches * shape.width * numerics.positions
        flight += block
    last = patches * shape.width * _norm_input(numerics)
    cast = "vision" in trained and numerics.compute != PIXEL_BYTES
    pixels = patches * shape.patch_pixels * numerics.compute if cast else 0
    return shape.depth * kept + last + projector + pixels, flight


def _vision_block(shape: Shape, recipe: Recipe, numerics: Numerics) -> int:
    """Bytes per patch that one vision block keeps, its scores left out.

    For width w and inner width i: the inputs of two norms; queries, keys, values and attention's result, which is
    also the input of the matrix behind it; the input of the activation. Trained weights add the inputs of the
    others: one copy per matrix if they are cast.
    """
    width, inner = shape.width, shape.inner
    per_patch = 2 * _norm_input(numerics) * width + numerics.compute * (4 * width + inner)
    if "vision" in trained_groups(recipe):
        cast = _norm_input(numerics) > numerics.compute
        per_patch += numerics.compute * ((4 if cast else 2) * width + inner)
    if recipe.adapter.vision:
        per_patch += lora_bytes(recipe.adapter, numerics, shape.vision_adapted, shared=width)
    return per_patch


def _norm_input(numerics: Numerics) -> int:
    """Bytes per number of what a norm of the tower keeps: its input, wider if the norm computes in float32."""
    return max(numerics.positions, layer_norm_bytes(numerics))
