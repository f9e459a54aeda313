"""Continuing a run or starting it anew: is it the same one, is it over, where does the old one go."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerState

from benchmarks.dataset import load_info, write_atomic
from benchmarks.locking import locked
from collators.encoder import differences
from models.processes import process_state
from models.provenance import base_weights_hash, read_encoder, write_encoder
from recipes.compare import changes
from recipes.errors import RecipeError
from recipes.schema import Recipe
from train.checkpoints import SEAL, TRAINER_STATE, best_checkpoint, read_state
from train.device_memory import current_launch
from train.prepare import Prepared
from train.start import start_hash

MARKER = "run.json"
# What a checkpoint holds besides the model folder.
_NOT_MODEL = (
    "optimizer*",
    "scheduler*",
    "rng_state*",
    TRAINER_STATE,
    SEAL,
    "training_args.bin",
    "global_step*",
    "latest",
    "zero_to_*.py",
    "pytorch_model_fsdp*",
)


def set_aside(out: Path, recipe: Recipe) -> Path | None:
    """Renames the run folder `out` to `OUT.old-1`, or to the next number that is free.

    Returns:
        The new path; `None` where `out` holds no run.

    Raises:
        DataError: Another process is writing it.
        RecipeError: The new run would read from it.
    """
    if not (out / MARKER).is_file():
        return None
    _check_outside(out, recipe)
    with locked(out, needed=True):
        names = (out.with_name(f"{out.name}.old-{number}") for number in itertools.count(1))
        old = next(path for path in names if not path.exists())
        out.rename(old)
    return old


def _check_outside(out: Path, recipe: Recipe) -> None:
    sources = {
        "data.dataset": recipe.data.dataset,
        "model.checkpoint": recipe.model.checkpoint,
        "adapter.init": recipe.adapter.init,
        "prompt.file": recipe.prompt.file,
        "vision_cache_dir": recipe.vision_cache_dir,
    }
    for field, source in sources.items():
        if source is not None and Path(source).resolve().is_relative_to(out.resolve()):
            raise RecipeError(
                f"--fresh would move {source}, which the new run reads", where=field, fix="give another --out"
            )


def claim(out: Path, prepared: Prepared) -> None:
    """Checks that `out` is new or holds the same run; the main process marks a new one.

    Raises:
        RecipeError: Another recipe, dataset, base, number of processes, what they share, or encoder.
    """
    marker = out / MARKER
    settings = _settings(prepared)
    if marker.is_file():
        changed = changes(json.loads(marker.read_text()), settings)
        if changed:
            raise RecipeError(
                f"{out} holds another run: {'; '.join(changed)}",
                fix="give another --out, the recipe, data and launch of that run, or --fresh (the old run is kept under "
                "another name)",
            )
        encoder = read_encoder(out)
        if encoder.fingerprint != prepared.encoder.fingerprint:
            raise RecipeError(
                f"{out} was trained with another encoder: {'; '.join(differences(prepared.encoder.parts, encoder.parts))}",
                fix="give another --out, restore the prompt file, processor and library versions, or give --fresh (the old "
                "run is kept under another name)",
            )
    elif process_state().is_main_process:
        write_encoder(out, prepared.recipe, prepared.encoder)
        write_atomic(marker, json.dumps(settings, indent=1).encode())


def _settings(prepared: Prepared) -> dict[str, Any]:
    recipe = prepared.recipe
    settings = {
        "recipe": recipe.model_dump(mode="json"),
        "dataset_hash": load_info(Path(recipe.data.dataset)).content_hash,
        "base_weights_hash": base_weights_hash(recipe),
        "init_weights_hash": start_hash(recipe),
        "processes": process_state().num_processes,
        "sharding": current_launch().sharding,
    }
    return json.loads(json.dumps(settings))  # type: ignore[no-any-return]


def is_over(state: TrainerState, steps: int) -> bool:
    """Whether nothing is left to train at a checkpoint: it is the last step's, or the run was stopped early there."""
    control = state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
    return state.global_step >= steps or bool(control.get("should_training_stop"))


def finish_from(checkpoint: Path, folder: Path) -> TrainerState:
    """Makes the new model folder of a run that was stopped after its last step, from its best checkpoint.

    Training on from there would take one step too many.
    """
    shutil.copytree(best_checkpoint(checkpoint), folder, ignore=shutil.ignore_patterns(*_NOT_MODEL))
    return read_state(checkpoint)
