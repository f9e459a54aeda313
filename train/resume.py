"""Continuing a run: is it the same one, and which checkpoint is whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerState

from benchmarks.dataset import load_info, write_atomic
from collators.encoder import differences
from models.processes import process_state
from models.provenance import base_weights_hash, read_encoder, write_encoder
from recipes.compare import changes
from recipes.errors import RecipeError
from train.device_memory import current_launch
from train.prepare import Prepared
from train.start import start_hash

MARKER = "run.json"
TRAINER_STATE = "trainer_state.json"
# What a checkpoint holds besides the model folder.
_NOT_MODEL = (
    "optimizer*",
    "scheduler*",
    "rng_state*",
    TRAINER_STATE,
    "training_args.bin",
    "global_step*",
    "latest",
    "zero_to_*.py",
    "pytorch_model_fsdp*",
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
                fix="give another --out, or the recipe, data and launch of that run",
            )
        encoder = read_encoder(out)
        if encoder.fingerprint != prepared.encoder.fingerprint:
            raise RecipeError(
                f"{out} was trained with another encoder: {'; '.join(differences(prepared.encoder.parts, encoder.parts))}",
                fix="give another --out, or restore the prompt file, processor and library versions",
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


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """The newest whole checkpoint; the Trainer writes `trainer_state.json` last, so a torn one lacks it.

    The main process renames torn ones to `torn-...`, where nothing looks for them.
    """
    found = sorted(checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", maxsplit=1)[-1]))
    while found:
        newest = found.pop()
        try:
            read_state(newest)
        except (OSError, ValueError, KeyError, TypeError):
            if process_state().is_main_process:
                torn = newest.with_name(f"torn-{newest.name}")
                shutil.rmtree(torn, ignore_errors=True)
                newest.rename(torn)
        else:
            return newest
    return None


def read_state(checkpoint: Path) -> TrainerState:
    """The Trainer's state at a checkpoint."""
    return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))


def is_over(state: TrainerState, steps: int) -> bool:
    """Whether nothing is left to train at a checkpoint: it is the last step's, or the run was stopped early there."""
    control = state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
    return state.global_step >= steps or bool(control.get("should_training_stop"))


def finish_from(checkpoint: Path, folder: Path) -> TrainerState:
    """Makes the model folder of a run that was stopped after its last step, from its best checkpoint.

    Training on from there would take one step too many.
    """
    state = read_state(checkpoint)
    best = checkpoint.parent / Path(state.best_model_checkpoint or checkpoint).name
    shutil.copytree(best, folder, ignore=shutil.ignore_patterns(*_NOT_MODEL), dirs_exist_ok=True)
    return state
