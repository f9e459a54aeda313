"""What a recipe and a launch cannot do together, refused before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from models.processes import process_state, uses_fsdp
from recipes.errors import RecipeError
from recipes.schema import Recipe
from train.device_memory import current_launch


def check_launch(recipe: Recipe) -> None:
    """Checks a recipe against the way its processes were started.

    Raises:
        RecipeError: A setting that would fail later, or be ignored; each names what to change.
    """
    for mistake in (*_without_sharding(recipe), *_deepspeed(recipe), *_fsdp(recipe)):
        raise mistake


def _without_sharding(recipe: Recipe) -> Iterator[RecipeError]:
    state = process_state()
    if state.device.type == "cuda" and torch.cuda.device_count() > 1 and state.num_processes == 1:
        yield RecipeError(
            f"{torch.cuda.device_count()} GPUs are visible but only one process runs",
            fix="show it one GPU (CUDA_VISIBLE_DEVICES=0), or start one process per GPU "
            "(accelerate launch --config_file recipes/accelerate/gpu8.yaml -m train RECIPE)",
        )
    if recipe.train.precision == "fp32" and recipe.model.dtype != "float32":
        yield RecipeError(
            f"train.precision fp32 computes without autocast and needs model.dtype float32, not {recipe.model.dtype}",
            where="train.precision",
            fix="set model.dtype: float32, or train.precision: bf16",
        )


def _deepspeed(recipe: Recipe) -> Iterator[RecipeError]:
    launch = current_launch()
    if not launch.deepspeed:
        return
    from accelerate.utils import DeepSpeedPlugin

    zero = DeepSpeedPlugin().deepspeed_config["zero_optimization"]
    if recipe.train.precision != "fp32" and process_state().device.type == "cpu":
        yield RecipeError(
            f"train.precision {recipe.train.precision} under DeepSpeed needs a GPU",
            where="train.precision",
            fix="set train.precision: fp32 and model.dtype: float32, or start without DeepSpeed",
        )
    yield from _whole_matrices(recipe, "DeepSpeed")
    if launch.sharding == "zero3" and recipe.model.quantization != "none":
        yield RecipeError(
            f"model.quantization {recipe.model.quantization} packs weights in a way that ZeRO-3 cannot cut up",
            where="model.quantization",
            fix="use ZeRO-2 (recipes/deepspeed/zero2.json) or no DeepSpeed, or set model.quantization: none",
        )
    if launch.sharding == "zero3" and not zero.get("stage3_gather_16bit_weights_on_model_save"):
        yield RecipeError(
            "this ZeRO-3 configuration would save shards instead of a model",
            where="zero_optimization.stage3_gather_16bit_weights_on_model_save",
            fix="set it to true, as recipes/deepspeed/zero3.json does",
        )


def _whole_matrices(recipe: Recipe, sharding: str) -> Iterator[RecipeError]:
    if recipe.train.optimizer == "muon":
        yield RecipeError(
            f"train.optimizer muon needs whole matrices; {sharding} hands out slices",
            where="train.optimizer",
            fix=f"use adamw, or start without {sharding}",
        )


def _fsdp(recipe: Recipe) -> Iterator[RecipeError]:
    if not uses_fsdp():
        return
    from accelerate.utils import parse_choice_from_env

    if process_state().device.type == "cpu":
        yield RecipeError(
            "FSDP needs GPUs: on a CPU accelerate leaves it out without a word and every process holds all weights",
            fix="start without --use_fsdp, or use DeepSpeed, which cuts weights up on a CPU too",
        )
    if parse_choice_from_env("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT") != "FULL_STATE_DICT":
        yield RecipeError(
            "this FSDP configuration would save shards instead of a model",
            where="fsdp_state_dict_type",
            fix="set it to FULL_STATE_DICT, as recipes/accelerate/gpu8_fsdp.yaml does",
        )
    yield from _whole_matrices(recipe, "FSDP")
    if recipe.model.quantization != "none":
        yield RecipeError(
            f"model.quantization {recipe.model.quantization} packs weights in a way that FSDP cannot cut up",
            where="model.quantization",
            fix="start without FSDP, or set model.quantization: none",
        )
    if recipe.data.validation is not None and recipe.selection.by == "score":
        yield RecipeError(
            "selection.by score generates answers, which FSDP's cut weights cannot do in step",
            where="selection.by",
            fix="set selection.by: loss, or use DeepSpeed, under which it works",
        )
