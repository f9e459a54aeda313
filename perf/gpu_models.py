"""Qwen3-VL of real size from its config alone: random weights made on the device, no checkpoint, nothing on the disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import nn

from collators.base import Length
from models.costs import family_costs, longest_batch
from models.processes import process_state
from models.registry import family_module
from models.skeleton import is_quantizable
from perf.rounds import MeasurementError
from recipes.schema import Recipe
from train.device_memory import memory_for_run
from train.memory import Launch, numerics, read_weights, state_parts
from train.prepare import master_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen3VLConfig

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Widths in channels, and counts.

    Attributes:
        hidden: Of the language model.
        inner: Of its gated unit.
        layers: Its blocks.
        heads: Its query heads.
        key_heads: Its heads of keys and values.
        head: Channels of a head.
        vocabulary: Rows of embeddings and head.
        tied: Whether these are one matrix.
        vision: Width of the vision tower.
        vision_inner: Of its feed-forward part.
        depth: Its blocks.
        levels: Blocks whose output goes to DeepStack.
    """

    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int = 8
    head: int = 128
    vocabulary: int = 151_936
    tied: bool
    vision: int
    vision_inner: int
    depth: int
    levels: tuple[int, ...]


# Source: `config.json` of Qwen/Qwen3-VL-2B-Instruct and Qwen/Qwen3-VL-8B-Instruct.
RELEASED = {
    "2B": Size(
        hidden=2048, inner=6144, layers=28, heads=16, tied=True,
        vision=1024, vision_inner=4096, depth=24, levels=(5, 11, 17),
    ),
    "8B": Size(
        hidden=4096, inner=12_288, layers=36, heads=32, tied=False,
        vision=1152, vision_inner=4304, depth=27, levels=(8, 16, 24),
    ),
}  # fmt: skip
# The same by name for a run that only shows that the code runs.
DRY = {
    name: replace(
        size, hidden=64 * number, inner=128, layers=2, heads=2 * number, key_heads=2, head=32, vocabulary=1024,
        vision=64, vision_inner=128, depth=2, levels=(0,),
    )
    for number, (name, size) in enumerate(RELEASED.items(), start=1)
}  # fmt: skip


def build_config(size: Size, tokenizer: PreTrainedTokenizerBase) -> Qwen3VLConfig:
    """The config of a size, with the ids of a tokenizer that may have fewer tokens than it."""
    from transformers import Qwen3VLConfig

    ids = tokenizer.convert_tokens_to_ids
    third = size.head // 2 // 3 // 4 * 4  # of the 64 pairs of a head's channels, as released: 24, 20, 20
    return Qwen3VLConfig(
        architectures=["Qwen3VLForConditionalGeneration"],
        text_config={
            "vocab_size": size.vocabulary,
            "hidden_size": size.hidden,
            "intermediate_size": size.inner,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_key_value_heads": size.key_heads,
            "head_dim": size.head,
            "max_position_embeddings": 262_144,
            "tie_word_embeddings": size.tied,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000,
                "mrope_interleaved": True,
                "mrope_section": [size.head // 2 - 2 * third, third, third],
            },
            "eos_token_id": ids("<|im_end|>"),
            "pad_token_id": ids("<|endoftext|>"),
        },
        vision_config={
            "depth": size.depth,
            "hidden_size": size.vision,
            "intermediate_size": size.vision_inner,
            "num_heads": 16 if size.vision > 512 else 2,
            "out_hidden_size": size.hidden,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": list(size.levels),
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=size.tied,
    )


def build_model(config: Qwen3VLConfig, recipe: Recipe, device: torch.device, longest: Length) -> PreTrainedModel:
    """A recipe's model with random weights on a device, as `train.prepare` would have it after loading.

    Args:
        config: The model's config.
        recipe: The run.
        device: Where to make it.
        longest: The longest sample, for `check_room`.

    Raises:
        MeasurementError: The recipe wants 4 bits and bitsandbytes is not there, or training does not fit the device.
    """
    check_room(config, recipe, longest)
    model = random_model(config, recipe, device)
    family = family_module(recipe.model.family)
    if recipe.model.quantization == "nf4":
        _quantize(model, getattr(torch, recipe.model.dtype))
    family.freeze(model, recipe.freeze)
    model = family.adapt(model, recipe.adapter, seed=recipe.train.seed)
    master_weights(model)
    return model


def random_model(config: Qwen3VLConfig, recipe: Recipe, device: torch.device) -> PreTrainedModel:
    """The base model in the recipe's type."""
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(recipe.train.seed)
    with device:
        model = AutoModelForImageTextToText.from_config(
            config, dtype=getattr(torch, recipe.model.dtype), attn_implementation=recipe.model.attention
        )
    model.config.use_cache = False
    return model


def check_room(config: Qwen3VLConfig, recipe: Recipe, longest: Length) -> None:
    """Counts weights, gradients, optimiser states and the activations of one sample before anything is made.

    Raises:
        MeasurementError: They are more than this process may use.
    """
    model = random_model(config, recipe, torch.device("meta"))
    family = family_module(recipe.model.family)
    family.freeze(model, recipe.freeze)
    model = family.adapt(model, recipe.adapter, seed=recipe.train.seed)
    states = sum(part.bytes for part in state_parts(read_weights(model, recipe), recipe, Launch()))
    shape = longest_batch([longest], 1)
    on_cpu = process_state().device.type == "cpu"
    passing: int = (
        family_costs(recipe.model.family)
        .activations(config, recipe, shape, numerics(recipe, Launch(), on_cpu=on_cpu))
        .total
    )
    room = memory_for_run()
    if states + passing > room:
        raise MeasurementError(
            f"weights, gradients and optimiser states take {states / GIB:.1f} GiB, the activations of one question "
            f"{passing / GIB:.1f}, the device has {room / GIB:.1f}",
            fix="train it on several devices",
        )


def _quantize(model: PreTrainedModel, compute: torch.dtype) -> None:
    """Puts the language model's matrices in 4 bits one after the other, as `models.loading` has transformers do it."""
    if find_spec("bitsandbytes") is None:
        raise MeasurementError("bitsandbytes is not there", fix="install the package bitsandbytes for 4 bits")
    from bitsandbytes.nn import Linear4bit, Params4bit

    linear = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and is_quantizable(f"{name}.weight", module.get_parameter("weight"))
    ]
    for name, module in linear:
        with torch.device("meta"):
            packed = Linear4bit(
                module.in_features, module.out_features, bias=False, compute_dtype=compute, quant_type="nf4"
            )
        weight = module.weight.data
        packed.weight = Params4bit(weight, requires_grad=False, quant_type="nf4").to(weight.device)
        model.set_submodule(name, packed)
    model.is_loaded_in_4bit = True
