"""Qwen3-VL: the model without its weights, and what a pass through it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collators.base import Length
from models.costs import recomputed, trained_groups
from models.language_costs import language_flops
from models.qwen3_vl_activations import activations
from models.qwen3_vl_shape import Shape
from models.skeleton import is_quantizable, skeleton
from recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import Qwen3VLConfig

__all__ = ["activations", "flops", "is_quantizable", "pixels_per_token", "skeleton"]


def pixels_per_token(config: Qwen3VLConfig) -> int:
    """Area of an image, after resizing, that becomes one token."""
    return int((config.vision_config.patch_size * config.vision_config.spatial_merge_size) ** 2)


def flops(config: Qwen3VLConfig, recipe: Recipe, length: Length) -> int:
    """Floating-point operations of one sample's forward and backward pass, padding left out.

    A product with a matrix of N elements costs 2N operations per token forward, 2N backward for its input and 2N
    more if the matrix is trained (Kaplan et al., 2020, section 2.1: 6N in all); attention costs 4 L^2 q forward
    and twice that backward, the causal half not taken off. Checkpointing repeats the blocks' forward pass.

    Args:
        config: The model's config.
        recipe: The run: what is trained, and whether blocks are recomputed.
        length: Token counts of the sample.
    """
    shape = Shape.of(config)
    trained = trained_groups(recipe)
    patches = length.images * shape.patches_per_token
    pairs = length.image_pairs * shape.patches_per_token**2
    vision = 2 * patches * shape.vision_block_weights + 4 * pairs * shape.vision.hidden_size
    vision = vision * (6 + recomputed(recipe) if "vision" in trained else 2) // 2
    merger = 2 + 2 * ("projector" in trained) + 2 * ("vision" in trained)
    return int(
        language_flops(shape.language, recipe, length, tied=bool(config.tie_word_embeddings))
        + shape.vision.depth * vision
        + patches * shape.patch_pixels * shape.vision.hidden_size * (2 + 2 * ("vision" in trained))
        + length.images * shape.mergers * shape.merger_weights * merger
    )
