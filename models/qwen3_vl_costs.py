"""Qwen3-VL: the model without its weights, and what a pass through it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from collators.base import Length
from models.qwen3_vl import LAYOUT, adapt, freeze, load_config
from models.qwen3_vl_activations import activations
from models.qwen3_vl_shape import Shape, trained_groups
from recipes.schema import Adapter, Recipe

if TYPE_CHECKING:
    from transformers import Qwen3VLConfig

__all__ = ["activations", "flops", "is_quantizable", "pixels_per_token", "skeleton"]


def skeleton(recipe: Recipe) -> tuple[Qwen3VLConfig, nn.Module]:
    """The checkpoint's config, and the recipe's model without memory behind its weights (device `meta`)."""
    from transformers import Qwen3VLForConditionalGeneration

    config = load_config(recipe.model)
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(config)
    freeze(model, recipe.freeze)
    # Where an adapter starts from does not change what it costs.
    return config, adapt(model, recipe.adapter.model_copy(update={"init": None}), seed=recipe.train.seed)


def is_quantizable(name: str, parameter: nn.Parameter) -> bool:
    """Whether nf4 would store a weight in 4 bits: the base's matrices in the language model's blocks."""
    return ".language_model.layers." in name and parameter.dim() == 2 and ".lora_" not in name


def pixels_per_token(config: Qwen3VLConfig) -> int:
    """Area of an image, after resizing, that becomes one token."""
    return int((config.vision_config.patch_size * config.vision_config.spatial_merge_size) ** 2)


def flops(config: Qwen3VLConfig, recipe: Recipe, length: Length, *, pictures: int) -> int:
    """Floating-point operations of one sample's forward and backward pass, padding left out.

    A product with a matrix of N elements costs 2N operations per token forward, 2N backward for its input and 2N
    more if the matrix is trained (Kaplan et al., 2020, section 2.1: 6N in all); attention costs 4 L^2 q forward
    and twice that backward, the causal half not taken off. Checkpointing repeats the blocks' forward pass.

    Args:
        config: The model's config.
        recipe: The run: what is trained, and whether blocks are recomputed.
        length: Token counts of the sample.
        pictures: Images of the sample, taken to be of the same size.
    """
    shape = Shape.of(config)
    trained = trained_groups(recipe)
    again = 2 if recipe.train.gradient_checkpointing else 0
    patches = length.images * shape.patches_per_token
    blocks = 2 * length.total * shape.block_weights
    attention = 4 * length.total**2 * shape.query
    language = blocks * (4 + again + 2 * ("language" in trained)) // 2 + attention * (6 + again) // 2
    if recipe.adapter.kind == "lora":
        language += length.total * (6 + again) * _adapter_weights(shape, recipe.adapter)
    vision = 2 * patches * shape.vision_block_weights + 4 * patches**2 // pictures * shape.vision.hidden_size
    vision = vision * (6 + again if "vision" in trained else 2) // 2
    merger = 2 + 2 * ("projector" in trained) + 2 * ("vision" in trained)
    # A tied head is trained with the embeddings.
    tied = bool(config.tie_word_embeddings)
    head = 4 + 2 * (("embeddings" if tied else "head") in trained)
    return int(
        shape.text.num_hidden_layers * language
        + shape.vision.depth * vision
        + patches * shape.patch_pixels * shape.vision.hidden_size * (2 + 2 * ("vision" in trained))
        + length.images * shape.mergers * shape.merger_weights * merger
        + length.target * shape.text.hidden_size * shape.text.vocab_size * head
    )


def _adapter_weights(shape: Shape, adapter: Adapter) -> int:
    """LoRA weights of one block: rank x (inputs + outputs) of each adapted layer."""
    hidden, query, key, inner = shape.text.hidden_size, shape.query, shape.key, shape.text.intermediate_size
    sides = {
        "q_proj": hidden + query,
        "k_proj": hidden + key,
        "v_proj": hidden + key,
        "o_proj": query + hidden,
        "gate_proj": hidden + inner,
        "up_proj": hidden + inner,
        "down_proj": inner + hidden,
    }
    return int(adapter.rank * sum(sides[name] for role in adapter.roles for name in LAYOUT.roles[role]))
