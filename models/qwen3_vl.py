"""Qwen3-VL: load, quantise, adapt by role, freeze by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from collators.base import Collator, PromptInputs
from collators.image_sets import KeptFeatures
from models import qwen3_vl_features
from models.layout import Layout
from models.loading import read_config, read_processor, read_weights
from models.patches import patches_as_product
from models.shared_prefix import use_shared_prefix
from models.vision_sets import KeptInputs, train_on_sets
from recipes.errors import RecipeError
from recipes.inputs import Images
from recipes.schema import Model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Qwen3VLConfig, Qwen3VLProcessor

LAYOUT = Layout(
    groups={
        "vision": ("model.visual.patch_embed.", "model.visual.pos_embed.", "model.visual.blocks."),
        "projector": ("model.visual.merger.", "model.visual.deepstack_merger_list."),
        "embeddings": ("model.language_model.embed_tokens.",),
        "language": ("model.language_model.layers.", "model.language_model.norm."),
        "head": ("lm_head.",),
    },
    roles={
        "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
        "mlp": ("gate_proj", "up_proj", "down_proj"),
    },
    language="model.language_model.",
    vision="model.visual.",
    embeddings="model.language_model.embed_tokens",
)
adapt = LAYOUT.adapt
freeze = LAYOUT.freeze
group_of = LAYOUT.group_of
lora_targets = LAYOUT.lora_targets
spare_tower = LAYOUT.spare_tower
trainable_by_group = LAYOUT.trainable_by_group


def load_processor(model: Model, images: Images) -> Qwen3VLProcessor:
    """The checkpoint's processor with the recipe's image budget, read back from a produced grid.

    Raises:
        RecipeError: No such checkpoint, or the budget has no effect in the installed transformers version.
    """
    processor = read_processor(model)
    set_image_budget(processor, images)
    return processor


def set_image_budget(processor: Qwen3VLProcessor, images: Images) -> None:
    """Sets the pixel budget and checks it on a picture above and one below it; see `load_processor`."""
    image_processor = processor.image_processor
    # `min_pixels` and `max_pixels` attributes are ignored since transformers 5: only `size` counts.
    image_processor.size = {"shortest_edge": images.min_pixels, "longest_edge": images.max_pixels}
    above, below = 2 * int(images.max_pixels**0.5) + 1, max(1, int(images.min_pixels**0.5) // 2)
    if (area := _resized(processor, above)) > max(images.max_pixels, block_pixels(processor)):
        raise _no_effect("max_pixels", images.max_pixels, above, area)
    if (area := _resized(processor, below)) < images.min_pixels:
        raise _no_effect("min_pixels", images.min_pixels, below, area)


def _resized(processor: Qwen3VLProcessor, side: int) -> int:
    """Area in pixels to which the processor brings a square image of `side` pixels."""
    image_processor = processor.image_processor
    return int(image_processor.get_number_of_image_patches(side, side, {})) * int(image_processor.patch_size) ** 2


def _no_effect(limit: str, pixels: int, side: int, area: int) -> RecipeError:
    return RecipeError(
        f"images.{limit} {pixels} has no effect: a {side}x{side} image still gets {area} pixels",
        where=f"images.{limit}",
        fix="use transformers 5.24 or newer, or report this version",
    )


def block_pixels(processor: Qwen3VLProcessor) -> int:
    """Native-resolution area of one image token, in pixels (32 x 32 for Qwen3-VL)."""
    image_processor = processor.image_processor
    return int((image_processor.patch_size * image_processor.merge_size) ** 2)


def load_config(model: Model) -> Qwen3VLConfig:
    """The checkpoint's config; see `models.loading.read_config`."""
    return read_config(model)


def load_model(model: Model, *, device_map: dict[str, int] | None = None) -> PreTrainedModel:
    """Loads the base weights in the recipe's type, in 4 bits if it says so; safetensors only.

    Raises:
        RecipeError: No such checkpoint, not in safetensors, of another family, or a package is missing for its
            quantization or attention.
    """
    load_config(model)
    # The vision tower is small and its error in 4 bits would reach every box.
    return read_weights(model, attention=model.attention, whole=("model.visual", "lm_head"), device_map=device_map)


def keep_features(model: PreTrainedModel, kept: KeptFeatures, *, lockstep: bool) -> None:
    """Lets a model train on batches of image sets; see `models.vision_sets.SetEncoder`."""
    train_on_sets(model, qwen3_vl_features, kept, lockstep=lockstep)


def share_images(model: PreTrainedModel, *, lockstep: bool = False) -> None:  # noqa: ARG001 - as other families
    """Lets a model compute packed rows, and its patches as a product; see `models.shared_prefix` and `models.patches`."""
    use_shared_prefix(model)
    patches_as_product(model)


def prompt_inputs(model: PreTrainedModel, collator: Collator) -> PromptInputs:
    """What builds the inputs to generate from: the collator, unless features are kept."""
    return collator if collator.kept is None else KeptInputs(model, qwen3_vl_features, collator.kept, collator)


def last_positions(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:
    """Positions of the last token of left-padded prompts.

    Args:
        model: The model, adapted or not.
        inputs: A batch of the collator without targets.

    Returns:
        int64[3, B, 1]; a prompt ends in text, whose position is the same on the three axes (time, height, width).
    """
    counter = next(module for module in model.modules() if hasattr(module, "get_rope_index"))
    positions: Tensor = counter.get_rope_index(
        inputs["input_ids"],
        inputs["mm_token_type_ids"],
        image_grid_thw=inputs["image_grid_thw"],
        attention_mask=inputs["attention_mask"],
    )[0]
    return positions[..., -1:]
