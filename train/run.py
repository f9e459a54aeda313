"""One training run: recipe -> plan -> Trainer -> model folder and manifest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.tensorboard import SummaryWriter
from transformers import set_seed
from transformers.integrations import TensorBoardCallback
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.dataset import image_root, load_info, write_atomic
from collators.encoder import Encoder, build_encoder, differences
from collators.qwen3_vl import Qwen3VLCollator
from collators.sources import FolderImages
from models.processes import process_state
from models.provenance import read_encoder, weights_hash, write_encoder
from models.registry import family_module
from recipes.compare import changes
from recipes.errors import RecipeError
from recipes.load import recipe_hash
from recipes.schema import Recipe
from train.arguments import training_arguments
from train.data import Measured, check_splits, describe, load_measured
from train.outputs import MODEL, write_card, write_manifest
from train.trainer import GroundedTrainer, StopOnNaN

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin

STATE = "run.json"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything a run needs before its first step."""

    recipe: Recipe
    processor: ProcessorMixin
    encoder: Encoder
    collator: Qwen3VLCollator
    train: Measured
    validation: Measured | None
    model: PreTrainedModel


def prepare(recipe: Recipe, say: Say) -> Prepared:
    """Loads, checks and measures; raises a `UserError` for whatever would fail later."""
    state = process_state()
    if torch.cuda.device_count() > 1 and state.num_processes == 1:
        raise RecipeError(
            f"{torch.cuda.device_count()} GPUs are visible but only one process runs",
            fix="start with `accelerate launch -m train RECIPE`, or set CUDA_VISIBLE_DEVICES to one device",
        )
    check_splits(recipe)
    family = family_module(recipe.model.family)
    processor = family.load_processor(recipe.model, recipe.images)
    encoder = build_encoder(recipe, processor)
    dataset = Path(recipe.data.dataset)
    collator = Qwen3VLCollator(
        encoder,
        processor,
        FolderImages(image_root(dataset)),
        targets=True,
        max_length=recipe.batch.max_length,
        max_target_tokens=recipe.batch.max_target_tokens,
    )
    quiet = not state.is_main_process
    train = load_measured(recipe, recipe.data.train, collator, limit=None, quiet=quiet)
    validation = None
    if recipe.data.validation is not None:
        limit = recipe.data.validation_limit
        validation = load_measured(recipe, recipe.data.validation, collator, limit=limit, quiet=quiet)
    set_seed(recipe.train.seed)
    device_map = (
        {"": state.local_process_index} if recipe.model.quantization != "none" and torch.cuda.is_available() else None
    )
    model = family.load_model(recipe.model, device_map=device_map)
    family.freeze(model, recipe.freeze)
    model = family.adapt(model, recipe.adapter, seed=recipe.train.seed)
    for line in plan(recipe, train, validation, model, state.num_processes):
        say(line)
    return Prepared(recipe, processor, encoder, collator, train, validation, model)


def plan(
    recipe: Recipe, train: Measured, validation: Measured | None, model: torch.nn.Module, processes: int
) -> list[str]:
    """The lines printed before the first step."""
    counts = family_module(recipe.model.family).trainable_by_group(model)
    trainable, total = (sum(pair[i] for pair in counts.values()) for i in (0, 1))
    lines = [f"recipe {recipe.name}: {recipe.adapter.kind} on {recipe.model.checkpoint}"]
    lines += [
        f"  {group:<10} {part:>13,} of {whole:>13,} parameters trained" for group, (part, whole) in counts.items()
    ]
    lines.append(f"  {'all':<10} {trainable:>13,} of {total:>13,} ({100 * trainable / total:.2f} %)")
    lines.append(describe(train, f"train ({recipe.data.train})"))
    if validation is not None:
        lines.append(describe(validation, f"validation ({recipe.data.validation})"))
    step = recipe.batch.size * recipe.batch.accumulation * processes
    per_epoch = -(-len(train.lengths) // step)
    steps = recipe.train.max_steps or -int(-per_epoch * (recipe.train.epochs or 1) // 1)
    lines.append(
        f"{steps:,} steps of {step} samples ({recipe.batch.size} x {recipe.batch.accumulation} accumulated x "
        f"{processes} processes), {per_epoch:,} steps per epoch"
    )
    return lines


def run(recipe: Recipe, out: Path, say: Say) -> Path:
    """Trains and writes `out/model`; continues from the newest checkpoint of the same recipe.

    Returns:
        The model folder.

    Raises:
        RecipeError: `out` holds a run of another recipe or encoder.
    """
    state = process_state()
    prepared = prepare(recipe, say)
    resume = _claim(out, prepared, main=state.is_main_process)
    state.wait_for_everyone()
    if resume:
        say(f"continuing from {Path(resume).name}")
    trainer = GroundedTrainer(
        recipe,
        prepared.model,
        args=training_arguments(recipe, out, quiet=not state.is_main_process),
        train_dataset=prepared.train.records,
        eval_dataset=prepared.validation.records if prepared.validation else None,
        data_collator=prepared.collator,
        processing_class=prepared.processor,
        callbacks=[StopOnNaN(), *_curves(out, main=state.is_main_process)],
    )
    started = time.monotonic()
    result = trainer.train(resume_from_checkpoint=resume)
    folder = out / MODEL
    trainer.save_model(str(folder))
    if state.is_main_process:
        facts = _facts(prepared, trainer, result.training_loss, time.monotonic() - started)
        prepared.processor.save_pretrained(folder)
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle; the recipe says it all
        write_encoder(folder, recipe, prepared.encoder)
        write_card(folder, recipe, facts)
        facts["weights_hash"] = weights_hash(folder)
        write_manifest(out / "manifest.json", recipe, prepared.encoder, facts)
        history = [json.dumps(entry) for entry in trainer.state.log_history]
        write_atomic(out / "history.jsonl", ("\n".join(history) + "\n").encode())
    state.wait_for_everyone()
    return folder


def _curves(out: Path, *, main: bool) -> list[TensorBoardCallback]:
    """TensorBoard curves under `out/tensorboard`, written by the main process."""
    return [TensorBoardCallback(SummaryWriter(log_dir=str(out / "tensorboard")))] if main else []


def _claim(out: Path, prepared: Prepared, *, main: bool) -> str | None:
    """Checks that `out` is new or holds the same run; returns its newest checkpoint, if any."""
    marker = out / STATE
    if marker.is_file():
        stored = json.loads(marker.read_text())
        changed = changes(stored["recipe"], prepared.recipe.model_dump(mode="json"))
        if stored["recipe_hash"] != recipe_hash(prepared.recipe):
            raise RecipeError(
                f"{out} holds a run of another recipe: {'; '.join(changed)}",
                fix="give another --out, or the recipe and overrides of that run",
            )
        encoder = read_encoder(out)
        if encoder.fingerprint != prepared.encoder.fingerprint:
            raise RecipeError(
                f"{out} was trained with another encoder: {'; '.join(differences(prepared.encoder.parts, encoder.parts))}",
                fix="give another --out, or restore the prompt file, processor and library versions",
            )
    elif main:
        out.mkdir(parents=True, exist_ok=True)
        write_encoder(out, prepared.recipe, prepared.encoder)
        stored = {"recipe": prepared.recipe.model_dump(mode="json"), "recipe_hash": recipe_hash(prepared.recipe)}
        write_atomic(marker, json.dumps(stored, indent=1).encode())
    checkpoints = out / "checkpoints"
    return get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None


def _facts(prepared: Prepared, trainer: GroundedTrainer, loss: float, seconds: float) -> dict[str, Any]:
    counts = family_module(prepared.recipe.model.family).trainable_by_group(prepared.model)
    dataset = Path(prepared.recipe.data.dataset)
    return {
        "dataset": dataset.name,
        "dataset_hash": load_info(dataset).content_hash,
        "samples": len(prepared.train.lengths),
        "dropped": prepared.train.dropped,
        "supervised_tokens": prepared.train.supervised,
        "image_tokens": sum(length.images for length in prepared.train.lengths),
        "steps": trainer.state.global_step,
        "loss": loss,
        "best_validation_loss": trainer.state.best_metric,
        "best_checkpoint": Path(trainer.state.best_model_checkpoint or "").name or None,
        "parameters": sum(total for _, total in counts.values()),
        "trainable_parameters": sum(trainable for trainable, _ in counts.values()),
        "trainable_modules": sorted({name for name, p in prepared.model.named_parameters() if p.requires_grad}),
        "processes": process_state().num_processes,
        "seconds": round(seconds, 1),
    }
