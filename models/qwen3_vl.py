"""Qwen3-VL: load, quantise, adapt by role, freeze by group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from models.adapters import adapter_folder, quiet_peft, start_from
from recipes.errors import RecipeError
from recipes.schema import Adapter, FreezeGroup, Images, Model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Qwen3VLConfig, Qwen3VLProcessor

MODEL_TYPE = "qwen3_vl"
ROLES = {
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
# Parameter name prefixes of each group, on the plain (unwrapped) model.
GROUPS: dict[FreezeGroup, tuple[str, ...]] = {
    "vision": ("model.visual.patch_embed.", "model.visual.pos_embed.", "model.visual.blocks."),
    "projector": ("model.visual.merger.", "model.visual.deepstack_merger_list."),
    "embeddings": ("model.language_model.embed_tokens.",),
    "language": ("model.language_model.layers.", "model.language_model.norm."),
    "head": ("lm_head.",),
}
LANGUAGE = "model.language_model."
EMBEDDINGS = "model.language_model.embed_tokens"


def load_processor(model: Model, images: Images) -> Qwen3VLProcessor:
    """The checkpoint's processor with the recipe's image budget, read back from a produced grid.

    Raises:
        RecipeError: No such checkpoint, or the budget has no effect in the installed transformers version.
    """
    from transformers import AutoProcessor

    with _readable(model):
        processor = AutoProcessor.from_pretrained(model.checkpoint, revision=model.revision)
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
    """The checkpoint's config.

    Raises:
        RecipeError: No such checkpoint, or one of another family.
    """
    from transformers import AutoConfig

    with _readable(model):
        config = AutoConfig.from_pretrained(model.checkpoint, revision=model.revision)
    if config.model_type != MODEL_TYPE:
        raise RecipeError(
            f"checkpoint {model.checkpoint} is of type {config.model_type}, the recipe says family {model.family}",
            where="model.checkpoint",
            fix=f"give a {MODEL_TYPE} checkpoint",
        )
    return config


def load_model(model: Model, *, device_map: dict[str, int] | None = None) -> PreTrainedModel:
    """Loads the base weights in the recipe's type, in 4 bits if it says so; safetensors only.

    Raises:
        RecipeError: No such checkpoint, not in safetensors, of another family, or a package is missing for its
            quantization or attention.
    """
    from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

    load_config(model)
    dtype = getattr(torch, model.dtype)
    quantization = None
    if model.quantization == "nf4":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            # The vision tower is small and its error would reach every box.
            llm_int8_skip_modules=["model.visual", "lm_head"],
        )
    with _readable(model), _installed(model):
        loaded = AutoModelForImageTextToText.from_pretrained(
            model.checkpoint,
            revision=model.revision,
            dtype=dtype,
            attn_implementation=model.attention,
            quantization_config=quantization,
            use_safetensors=True,
            device_map=device_map,
        )
    loaded.config.use_cache = False
    return loaded


@contextmanager
def _readable(model: Model) -> Iterator[None]:
    """Turns what transformers says of a missing or incomplete checkpoint into our error."""
    try:
        yield
    except OSError as error:
        raise RecipeError(
            f"checkpoint {model.checkpoint} cannot be loaded: {str(error).splitlines()[0]}",
            where="model.checkpoint",
            fix="give a folder with config, processor and safetensors files, or a name on the hub (and a network)",
        ) from error


@contextmanager
def _installed(model: Model) -> Iterator[None]:
    """Turns what transformers says of a package that the quantization or attention needs into our error."""
    try:
        yield
    except ImportError as error:
        said = str(error).splitlines()[0]
        if "bitsandbytes" in said:
            raise RecipeError(
                f"model.quantization {model.quantization} cannot be used: {said}",
                where="model.quantization",
                fix="pip install -e '.[quant]', or set model.quantization=none",
            ) from error
        raise RecipeError(
            f"model.attention {model.attention} cannot be used: {said}",
            where="model.attention",
            fix="install the package it needs, or set model.attention=sdpa",
        ) from error


def lora_targets(model: nn.Module, adapter: Adapter) -> list[str]:
    """Full names of the language model's linear layers with one of the adapter's roles.

    Names are resolved inside the language model only: vision towers share projection names.

    Raises:
        RecipeError: No layer matches.
    """
    names = [suffix for role in adapter.roles for suffix in ROLES[role]]
    found = [
        name
        for name, _ in model.named_modules()
        if name.startswith(LANGUAGE) and name.rsplit(".", maxsplit=1)[-1] in names
    ]
    if not found:
        raise RecipeError(
            f"no layer below {LANGUAGE} is named {', '.join(names)}", where="adapter.roles", fix="check model.family"
        )
    return found


def adapt(model: PreTrainedModel, adapter: Adapter, *, seed: int) -> PreTrainedModel:
    """Wraps the model for LoRA; full fine-tuning returns it unchanged.

    Args:
        model: Loaded base model.
        adapter: The recipe's adapter section.
        seed: Seed of the adapter's random half.

    Raises:
        RecipeError: No layer matches, a tied head is to be trained alone, or `adapter.init` has another form.
    """
    if adapter.kind == "full":
        return model
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if getattr(model, "is_loaded_in_4bit", False):
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    modules = _modules(model, adapter)
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        bias="none",
        target_modules=lora_targets(model, adapter),
        modules_to_save=modules or None,
        # Without it peft would train two copies of a shared matrix, which become one again on loading.
        ensure_weight_tying=_tied(model) and EMBEDDINGS in modules,
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    with quiet_peft():
        adapted = get_peft_model(model, config)
    if adapter.init is not None:
        start_from(adapted, adapter_folder(adapter.init))
    return adapted


def _tied(model: PreTrainedModel) -> bool:
    """Whether head and embeddings are one matrix."""
    return model.get_input_embeddings().weight is model.get_output_embeddings().weight


def _modules(model: PreTrainedModel, adapter: Adapter) -> list[str]:
    """Names of the modules to train in full; a head that shares the embeddings' matrix comes with them."""
    groups = set(adapter.train_also)
    if "head" in groups and _tied(model):
        if "embeddings" not in groups:
            raise RecipeError(
                "the head is tied to the embeddings in this checkpoint: it cannot be trained alone",
                where="adapter.train_also",
                fix="name `embeddings` (both are trained as the one matrix that they are), or drop `head`",
            )
        groups.remove("head")
    names: list[str] = []
    for name in (prefix.removesuffix(".") for group in sorted(groups) for prefix in GROUPS[group]):
        module = model.get_submodule(name)
        # peft can copy a module, but not a list of modules.
        names += [f"{name}.{number}" for number in range(len(module))] if isinstance(module, nn.ModuleList) else [name]
    return names


def freeze(model: nn.Module, groups: tuple[FreezeGroup, ...]) -> None:
    """Stops training of the named groups and checks that it took effect.

    Raises:
        RecipeError: A group has no parameter in this model, or nothing is left to train.
    """
    for group in groups:
        names = [name for name, _ in model.named_parameters() if name.startswith(GROUPS[group])]
        if not names:
            hint = (
                "the head is tied to the embeddings: freeze `embeddings`" if group == "head" else "check model.family"
            )
            raise RecipeError(f"freeze group {group!r} has no parameter in this model", where="freeze", fix=hint)
        for name in names:
            model.get_parameter(name).requires_grad = False
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise RecipeError("every parameter is frozen: nothing to train", where="freeze", fix="freeze fewer groups")


def group_of(name: str) -> str:
    """The freeze group of a parameter, seen through PEFT's name prefix; `lora` for adapter weights."""
    name = name.removeprefix("base_model.model.")
    if ".lora_" in name:
        return "lora"
    return next((group for group, prefixes in GROUPS.items() if name.startswith(prefixes)), "other")


def trainable_by_group(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Group -> (trainable, all) parameter counts.

    4-bit weights count as what they stand for; a module that is trained beside the adapter counts once.
    """
    counts: dict[str, tuple[int, int]] = {}
    for name, parameter in model.named_parameters():
        if ".original_module." in name:
            continue
        size = parameter.numel()
        shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
        if shape is not None:
            size = int(torch.Size(shape).numel())
        trainable, total = counts.get(group_of(name), (0, 0))
        counts[group_of(name)] = (trainable + (size if parameter.requires_grad else 0), total + size)
    return counts
