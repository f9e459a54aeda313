"""Processor, config and weights of a checkpoint; what transformers says of a broken one becomes our error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from recipes.errors import RecipeError
from recipes.schema import Model

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, ProcessorMixin


def read_processor(model: Model) -> ProcessorMixin:
    """The checkpoint's processor as it is stored.

    Raises:
        RecipeError: No such checkpoint.
    """
    from transformers import AutoProcessor

    with _readable(model):
        return AutoProcessor.from_pretrained(model.checkpoint, revision=model.revision)


def read_config(model: Model) -> PreTrainedConfig:
    """The checkpoint's config.

    Raises:
        RecipeError: No such checkpoint, or one of another family.
    """
    from transformers import AutoConfig

    with _readable(model):
        config = AutoConfig.from_pretrained(model.checkpoint, revision=model.revision)
    if config.model_type != model.family:
        raise RecipeError(
            f"checkpoint {model.checkpoint} is of type {config.model_type}, the recipe says family {model.family}",
            where="model.checkpoint",
            fix=f"give a {model.family} checkpoint",
        )
    return config


def read_weights(
    model: Model,
    *,
    attention: str | dict[str, str],
    whole: Sequence[str],
    device_map: dict[str, int] | None,
) -> PreTrainedModel:
    """The base weights in the recipe's type, in 4 bits if it says so; safetensors only.

    Args:
        model: The recipe's model section.
        attention: Attention implementation, for the whole model or by part.
        whole: Modules that stay out of the 4 bits.
        device_map: Where 4-bit weights go while they are loaded.

    Raises:
        RecipeError: No such checkpoint, not in safetensors, or a package is missing for its quantization or
            attention.
    """
    from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

    dtype = getattr(torch, model.dtype)
    quantization = None
    if model.quantization == "nf4":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            llm_int8_skip_modules=list(whole),
        )
    with _readable(model), _installed(model):
        loaded = AutoModelForImageTextToText.from_pretrained(
            model.checkpoint,
            revision=model.revision,
            dtype=dtype,
            attn_implementation=attention,
            quantization_config=quantization,
            use_safetensors=True,
            device_map=device_map,
        )
    loaded.config.use_cache = False
    # FSDP wraps by these names and stops at one that is not there: transformers (5.24) lists SigLIP's text side too.
    present = {type(module).__name__ for module in loaded.modules()}
    loaded._no_split_modules = [name for name in loaded._no_split_modules or () if name in present]
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
