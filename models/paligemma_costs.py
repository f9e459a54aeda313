"""PaliGemma: the model without its weights, and what a pass through it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collators.base import Length
from models.costs import block_flops, recomputed, trained_groups
from models.language_costs import language_flops
from models.paligemma_activations import activations
from models.paligemma_shape import Shape, tower_is_passed
from models.skeleton import is_quantizable, skeleton
from recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PaliGemmaConfig

__all__ = ["SIDES", "activations", "flops", "is_quantizable", "pixels_per_token", "skeleton"]

# Pictures of the released checkpoints in pixels, both generations (huggingface.co/docs/transformers/model_doc/paligemma).
SIDES = (896, 448, 224)


def pixels_per_token(config: PaliGemmaConfig) -> int:
    """Area of the canvas that becomes one token: a patch."""
    return int(config.vision_config.patch_size**2)


def flops(config: PaliGemmaConfig, recipe: Recipe, length: Length) -> int:
    """Floating-point operations of one sample's forward and backward pass, padding left out.

    Counted as in `models.qwen3_vl_costs.flops`.

    Args:
        config: The model's config.
        recipe: The run: what is trained, and whether blocks are recomputed.
        length: Token counts of the sample.
    """
    shape = Shape.of(config)
    trained = trained_groups(recipe)
    patches, width = length.images, shape.width
    through = tower_is_passed(recipe)
    back = 2 + recomputed(recipe) if through else 0
    block = block_flops(
        patches,
        weights=shape.vision_block_weights,
        pairs=length.image_pairs,
        width=width,
        products=2 + back + 2 * ("vision" in trained),
        scores=2 + back + 2 * through,
    )
    if recipe.adapter.vision:
        adapters = recipe.adapter.rank * 2 * sum(shape.vision_adapted)
        block += patches * adapters * (6 + recomputed(recipe))
    return (
        language_flops(shape.language, recipe, length, tied=bool(config.tie_word_embeddings))
        + shape.depth * block
        + patches * shape.patch_pixels * width * (2 + 2 * ("vision" in trained))
        + patches * width * shape.language.hidden * (2 + 2 * ("projector" in trained) + 2 * through)
        - (_not_repeated(shape, recipe, length) if recipe.train.gradient_checkpointing else 0)
    )


def _not_repeated(shape: Shape, recipe: Recipe, length: Length) -> int:
    """Operations of each block's last product: recomputing stops before it if nothing behind it needs its result."""
    vision = shape.depth * length.images * shape.width * shape.inner
    adapted = recipe.adapter.kind == "lora" and "mlp" in recipe.adapter.roles
    if adapted or shape.language.norms > 2:
        return 2 * vision
    return 2 * (vision + shape.language.layers * length.total * shape.language.hidden * shape.language.inner)
