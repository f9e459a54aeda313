"""Everything before the first step: load, check, measure, and the plan that is printed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import set_seed

from benchmarks.dataset import image_root
from collators.base import Collator
from collators.encoder import Encoder, build_encoder
from collators.sources import FolderImages
from models.pixel_cache import PixelCache, open_pixel_cache
from models.processes import process_state, quantized_device_map, uses_deepspeed
from models.registry import family_collator, family_module
from models.vision_cache import VisionCache, open_vision_cache
from recipes.schema import Recipe
from train.data import Measured, check_splits, describe, load_measured
from train.device_memory import current_launch
from train.launch import check_launch
from train.plan import Plan
from train.start import check_start

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What a run feeds to a model.

    Attributes:
        recipe: The recipe.
        processor: Processor with the recipe's image budget.
        encoder: Prompt, image plan and codec.
        collator: Collator with targets.
        train: Measured training split.
        validation: Measured validation split, if the recipe has one.
        schedule: Which samples make up which step.
        steps: Optimiser steps of the whole run.
    """

    recipe: Recipe
    processor: ProcessorMixin
    encoder: Encoder
    collator: Collator
    train: Measured
    validation: Measured | None
    schedule: Plan
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Feed):
    """Everything a run needs before its first step: what it feeds, and to which model.

    Attributes:
        model: Adapted model.
        kept: Where vision features are kept; `None` encodes them in every pass.
        pixels: Where prepared pixels are kept; `None` prepares them for every pass.
        parameters: Group -> (trainable, all) parameter counts; ZeRO-3 leaves nothing to count later.
        trainable: Names of the trainable parameters.
    """

    model: PreTrainedModel
    kept: VisionCache | None
    pixels: PixelCache | None
    parameters: dict[str, tuple[int, int]]
    trainable: list[str]


def read_feed(recipe: Recipe) -> Feed:
    """Loads processor and data, checks and measures them; needs no weights.

    Raises:
        UserError: Whatever in dataset, processor or launch would stop the run later.
    """
    state = process_state()
    check_launch(recipe)
    check_splits(recipe)
    processor = family_module(recipe.model.family).load_processor(recipe.model, recipe.images)
    encoder = build_encoder(recipe, processor)
    check_start(recipe, encoder)
    collator = family_collator(recipe.model.family)(
        encoder,
        processor,
        FolderImages(image_root(Path(recipe.data.dataset))),
        targets=True,
        max_length=recipe.batch.max_length,
        max_target_tokens=recipe.batch.max_target_tokens,
        share_images=recipe.batch.share_images,
    )
    quiet = not state.is_main_process
    train = load_measured(recipe, recipe.data.train, collator, limit=None, quiet=quiet)
    validation = None
    if recipe.data.validation is not None:
        limit = recipe.data.validation_limit
        validation = load_measured(recipe, recipe.data.validation, collator, limit=limit, quiet=quiet)
    schedule = Plan(
        train.samples, recipe.batch, seed=recipe.train.seed, processes=state.num_processes, packed=collator.packs
    )
    # The last, smaller group of an epoch is a step too.
    steps = recipe.train.max_steps or math.ceil(schedule.steps_per_epoch * (recipe.train.epochs or 1))
    return Feed(
        recipe=recipe,
        processor=processor,
        encoder=encoder,
        collator=collator,
        train=train,
        validation=validation,
        schedule=schedule,
        steps=steps,
    )


def prepare(recipe: Recipe, say: Say) -> Prepared:
    """Loads, checks and measures; raises a `UserError` for whatever would fail later."""
    feed = read_feed(recipe)
    family = family_module(recipe.model.family)
    set_seed(recipe.train.seed)
    model = family.load_model(recipe.model, device_map=quantized_device_map(recipe.model))
    family.freeze(model, recipe.freeze)
    model = family.adapt(model, recipe.adapter, seed=recipe.train.seed)
    if recipe.batch.share_images:
        family.share_images(model, lockstep=current_launch().cuts_weights)
    if not uses_deepspeed():
        master_weights(model)
    kept = _keep_features(feed, model)
    pixels = open_pixel_cache(recipe, feed.encoder, Path(recipe.data.dataset))
    if pixels is not None:
        feed.collator.keep_pixels(pixels)
    prepared = Prepared(
        **{field.name: getattr(feed, field.name) for field in fields(feed)},
        model=model,
        kept=kept,
        pixels=pixels,
        parameters=family.trainable_by_group(model),
        trainable=sorted(name for name, parameter in model.named_parameters() if parameter.requires_grad),
    )
    for line in plan(prepared, process_state().num_processes):
        say(line)
    return prepared


def _keep_features(feed: Feed, model: PreTrainedModel) -> VisionCache | None:
    """Has the collator look vision features up, and the model put those in their place that it must compute."""
    recipe, launch = feed.recipe, current_launch()
    precision = recipe.train.precision
    if precision == "fp32":
        computed = "weights"
    else:
        computed = f"{launch.sharding if launch.deepspeed or launch.cuts_weights else 'autocast'} {precision}"
    sets = len(feed.train.lengths) + (0 if feed.validation is None else len(feed.validation.lengths))
    kept = open_vision_cache(recipe, model, feed.encoder, Path(recipe.data.dataset), precision=computed, sets=sets)
    if kept is not None:
        feed.collator.kept = kept
        family_module(recipe.model.family).keep_features(model, kept, lockstep=launch.cuts_weights)
    return kept


def plan(prepared: Prepared, processes: int) -> list[str]:
    """The lines printed before the first step."""
    recipe = prepared.recipe
    lines = [f"recipe {recipe.name}: {recipe.adapter.kind} on {recipe.model.checkpoint}"]
    lines.append(describe(prepared.train, f"train ({recipe.data.train})"))
    if prepared.validation is not None:
        lines.append(describe(prepared.validation, f"validation ({recipe.data.validation})"))
    schedule = prepared.schedule
    if recipe.train.warmup_steps >= prepared.steps:
        lines.append(
            f"WARNING: train.warmup_steps {recipe.train.warmup_steps} is not below the {prepared.steps:,} steps of the run: "
            "the learning rate never reaches its peak"
        )
    lines.append(
        f"{prepared.steps:,} steps of {schedule.per_step} samples ({recipe.batch.size} x {recipe.batch.accumulation} "
        f"accumulated x {processes} processes), {schedule.steps_per_epoch:,} steps per epoch; longest sample first"
    )
    return lines


def master_weights(model: torch.nn.Module) -> None:
    """Keeps trained weights in float32: steps of a small learning rate round away in 16 bits.

    Autocast computes in the recipe's precision all the same. DeepSpeed keeps such copies by itself.
    """
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.is_floating_point():
            parameter.data = parameter.data.float()
