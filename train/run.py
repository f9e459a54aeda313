"""One training run: recipe -> plan -> Trainer -> model folder and manifest."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from transformers import TrainerState

from benchmarks.dataset import load_info, write_atomic
from benchmarks.locking import locked
from models.processes import process_state
from models.provenance import weights_hash, write_encoder
from recipes.schema import Recipe
from train.arguments import training_arguments
from train.callbacks import callbacks
from train.checkpoints import CHECKPOINTS, newest_checkpoint, read_state
from train.device_memory import PeakMemory
from train.disk import check_room, writing
from train.estimate import compare_peak, estimate_run, workload_of
from train.loader import StepLoader
from train.outputs import MANIFEST, MODEL, write_card, write_manifest
from train.pace import Pace
from train.prepare import Prepared, Say, prepare
from train.reading import reading
from train.resume import claim, finish_from, is_over, set_aside
from train.start import start_hash
from train.trainer import GroundedTrainer
from train.validation import validation

# The model folder until it is complete.
_PART = ".model.part"


def run(recipe: Recipe, out: Path, say: Say, *, fresh: bool = False) -> Path:
    """Trains and writes `out/model`; continues from the newest whole checkpoint of the same run.

    Args:
        recipe: The run.
        out: Run folder.
        say: Takes lines for the user.
        fresh: Starts anew; a run in `out` is renamed first.

    Returns:
        The model folder; a finished run is left as it is.

    Raises:
        RecipeError: `out` holds a run of another recipe, dataset, base or encoder.
        UserError: The adapter to start from was trained with another encoder or on another base.
        DataError: Another process is writing `out`.
        TrainingError: The loss is not a number, memory or disk space ran out, or a checkpoint is damaged.
    """
    state = process_state()
    peak = PeakMemory()
    prepared = prepare(recipe, say)
    estimate = estimate_run(recipe, workload_of(prepared.train, prepared.steps, packed=prepared.collator.packs))
    for line in estimate.lines():
        say(line)
    folder = out / MODEL
    if fresh:
        _start_afresh(recipe, out, say)
    with writing(out), locked(out, needed=state.is_main_process):
        claim(out, prepared)
        state.wait_for_everyone()
        if (out / MANIFEST).is_file():
            say(f"{out} is finished: nothing to do (--fresh trains it anew)")
            return folder
        resume = newest_checkpoint(out / CHECKPOINTS)
        state.wait_for_everyone()
        if state.is_main_process:
            check_room(prepared, out)
        _train(prepared, out, resume, say)
        say(compare_peak(estimate, peak.measured()))
        state.wait_for_everyone()
    return folder


def _start_afresh(recipe: Recipe, out: Path, say: Say) -> None:
    state = process_state()
    if state.is_main_process:
        with writing(out):
            old = set_aside(out, recipe)
        if old is not None:
            say(f"the run in {out} is now {old}")
    state.wait_for_everyone()


def _train(prepared: Prepared, out: Path, resume: Path | None, say: Say) -> None:
    started = time.monotonic()
    part = out / _PART
    if resume is not None:
        say(f"continuing from {resume.name}")
    main = process_state().is_main_process
    if main:
        shutil.rmtree(part, ignore_errors=True)  # of an interrupted run
    if resume is not None and is_over(read_state(resume), prepared.steps):
        if main:
            _write(prepared, out, finish_from(resume, part), time.monotonic() - started)
        return
    first = 0 if resume is None else read_state(resume).global_step
    pace = Pace(prepared.schedule, first=first, total=prepared.steps, say=say)
    trainer = _trainer(prepared, out, first=first)
    trainer.add_callback(pace)
    with reading(resume):
        trainer.train(resume_from_checkpoint=str(resume) if resume is not None else None)
    trainer.save_model(str(part))
    if main:
        _write(prepared, out, trainer.state, time.monotonic() - started, pace.facts)


def _trainer(prepared: Prepared, out: Path, *, first: int) -> GroundedTrainer:
    """The Trainer over the steps after `first`."""
    recipe, state = prepared.recipe, process_state()
    steps = StepLoader(
        prepared.schedule,
        prepared.train.records,
        prepared.collator,
        rank=state.process_index,
        first=first,
        total=prepared.steps,
        pin=state.device.type == "cuda",
    )
    main = state.is_main_process
    return GroundedTrainer(
        recipe,
        prepared.model,
        steps,
        validate=validation(prepared, out),
        eval_dataset=prepared.validation.records if prepared.validation else None,
        args=training_arguments(recipe, out, steps=prepared.steps, quiet=not main),
        processing_class=prepared.processor,
        callbacks=callbacks(prepared, out, first=first, main=main),
    )


def _write(
    prepared: Prepared, out: Path, state: TrainerState, seconds: float, pace: dict[str, float] | None = None
) -> None:
    """Completes the model folder and writes history and manifest, the manifest last: it marks the end."""
    folder = out / _PART
    facts = _facts(prepared, state, seconds) | {"pace": pace}
    prepared.processor.save_pretrained(folder)
    (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle; the recipe says it all
    write_encoder(folder, prepared.recipe, prepared.encoder)
    write_card(folder, prepared.recipe, facts)
    shutil.rmtree(out / MODEL, ignore_errors=True)  # of a run killed before its manifest
    folder = folder.rename(out / MODEL)
    history = [json.dumps(entry) for entry in state.log_history]
    write_atomic(out / "history.jsonl", ("\n".join(history) + "\n").encode())
    write_manifest(out / MANIFEST, prepared.recipe, prepared.encoder, facts | {"weights_hash": weights_hash(folder)})


def _facts(prepared: Prepared, state: TrainerState, seconds: float) -> dict[str, Any]:
    dataset = Path(prepared.recipe.data.dataset)
    losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
    return {
        "dataset": dataset.name,
        "dataset_hash": load_info(dataset).content_hash,
        "samples": len(prepared.train.lengths),
        "dropped": prepared.train.dropped,
        "unseen": prepared.train.unseen,
        "cut_boxes": prepared.train.cut_boxes,
        "init_weights_hash": start_hash(prepared.recipe),
        "supervised_tokens": prepared.train.supervised,
        "supervised_tokens_per_sample": prepared.train.per_sample,
        "image_tokens": sum(length.images for length in prepared.train.lengths),
        "steps": state.global_step,
        "loss": losses[-1] if losses else None,
        "best_validation_loss": min(
            (entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry), default=None
        ),
        "best_checkpoint": Path(state.best_model_checkpoint or "").name or None,
        "parameters": sum(total for _, total in prepared.parameters.values()),
        "trainable_parameters": sum(trainable for trainable, _ in prepared.parameters.values()),
        "trainable_modules": prepared.trainable,
        "processes": process_state().num_processes,
        "seconds": round(seconds, 1),
    }
