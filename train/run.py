"""One training run: recipe -> plan -> Trainer -> model folder and manifest."""

from __future__ import annotations

import json
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
from train.device_memory import PeakMemory
from train.estimate import compare_peak, estimate_run, workload_of
from train.loader import StepLoader
from train.outputs import MANIFEST, MODEL, write_card, write_manifest
from train.prepare import Prepared, Say, prepare
from train.resume import claim, finish_from, is_over, newest_checkpoint, read_state
from train.start import start_hash
from train.trainer import GroundedTrainer, TrainingError
from train.validation import validation


def run(recipe: Recipe, out: Path, say: Say) -> Path:
    """Trains and writes `out/model`; continues from the newest whole checkpoint of the same run.

    Returns:
        The model folder; a finished run is left as it is.

    Raises:
        RecipeError: `out` holds a run of another recipe, dataset, base or encoder.
        UserError: The adapter to start from was trained with another encoder or on another base.
        DataError: Another process is writing `out`.
        TrainingError: The loss is not a number, memory or disk space ran out.
    """
    state = process_state()
    peak = PeakMemory()
    prepared = prepare(recipe, say)
    estimate = estimate_run(recipe, workload_of(prepared.train, prepared.steps))
    for line in estimate.lines():
        say(line)
    folder = out / MODEL
    with locked(out, needed=state.is_main_process):
        claim(out, prepared)
        state.wait_for_everyone()
        if (out / MANIFEST).is_file():
            say(f"{out} is finished: nothing to do")
            return folder
        resume = newest_checkpoint(out / "checkpoints")
        state.wait_for_everyone()
        try:
            _train(prepared, out, resume, say)
            say(compare_peak(estimate, peak.measured()))
        except OSError as error:
            raise TrainingError(
                f"the run cannot be written: {error}",
                where=str(error.filename or out),
                fix="free space or mend permissions; the same command continues from the newest whole checkpoint",
            ) from error
        state.wait_for_everyone()
    return folder


def _train(prepared: Prepared, out: Path, resume: Path | None, say: Say) -> None:
    started = time.monotonic()
    folder = out / MODEL
    if resume is not None:
        say(f"continuing from {resume.name}")
    if resume is not None and is_over(read_state(resume), prepared.steps):
        if process_state().is_main_process:
            _write(prepared, out, finish_from(resume, folder), time.monotonic() - started)
        return
    trainer = _trainer(prepared, out, first=0 if resume is None else read_state(resume).global_step)
    trainer.train(resume_from_checkpoint=str(resume) if resume is not None else None)
    trainer.save_model(str(folder))
    if process_state().is_main_process:
        _write(prepared, out, trainer.state, time.monotonic() - started)


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
        workers=recipe.batch.workers,
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


def _write(prepared: Prepared, out: Path, state: TrainerState, seconds: float) -> None:
    """Completes the model folder and writes history and manifest, the manifest last: it marks the end."""
    folder = out / MODEL
    facts = _facts(prepared, state, seconds)
    prepared.processor.save_pretrained(folder)
    (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle; the recipe says it all
    write_encoder(folder, prepared.recipe, prepared.encoder)
    write_card(folder, prepared.recipe, facts)
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
        "init_weights_hash": start_hash(prepared.recipe),
        "supervised_tokens": prepared.train.supervised,
        "image_tokens": sum(length.images for length in prepared.train.lengths),
        "steps": state.global_step,
        "loss": losses[-1] if losses else None,
        "best_validation_loss": state.best_metric,
        "best_checkpoint": Path(state.best_model_checkpoint or "").name or None,
        "parameters": sum(total for _, total in prepared.parameters.values()),
        "trainable_parameters": sum(trainable for trainable, _ in prepared.parameters.values()),
        "trainable_modules": prepared.trainable,
        "processes": process_state().num_processes,
        "seconds": round(seconds, 1),
    }
