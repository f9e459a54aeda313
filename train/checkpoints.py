"""Checkpoints: sealed once they are whole, found again, and removed so that a whole one is always left."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from benchmarks.dataset import read_struct, sha256_file, write_atomic
from models.processes import process_state
from train.trainer import NOT_FINITE_FIX, TrainingError

CHECKPOINTS = "checkpoints"
SEAL = "checkpoint.json"
TRAINER_STATE = "trainer_state.json"
# Hashing larger files would hold up all processes for longer than a process group waits.
HASHED = 2**30


class StoredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a checkpoint.

    Attributes:
        size: Bytes.
        sha256: Hash of its bytes, hexadecimal; `None` for a file above `HASHED`.
    """

    size: int
    sha256: str | None


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of `checkpoint.json`, which is written last.

    Attributes:
        files: Path inside the checkpoint -> file.
    """

    files: dict[str, StoredFile]


def seal(checkpoint: Path) -> None:
    """Flushes a checkpoint's files to disk and lists them: from now on it counts as whole."""
    found = _files(checkpoint)
    for path in found.values():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    files = {name: _stored(path) for name, path in found.items()}
    write_atomic(checkpoint / SEAL, msgspec.json.format(msgspec.json.encode(Seal(files)), indent=1))


def check_sealed(checkpoint: Path) -> None:
    """Refuses a checkpoint that is not as it was when it was sealed.

    Such a one is not half-written (that one has no seal) but damaged, or holds another run's files.

    Raises:
        TrainingError: Names the files that are missing, changed or new.
        DataError: The seal cannot be read.
    """
    fix = (
        f"restore {checkpoint}, or remove it to continue from the checkpoint before; --fresh starts anew and keeps all "
        "there is"
    )
    expected = read_struct(checkpoint / SEAL, Seal, what="a list of a checkpoint's files", fix=fix).files
    found = _files(checkpoint)
    faults = [f"{name} is missing" for name in expected.keys() - found.keys()]
    # Hidden ones are left by file systems and desktops, and nothing reads them.
    faults += [
        f"{name} is not a file of it" for name in found.keys() - expected.keys() if not found[name].name.startswith(".")
    ]
    faults += [
        f"{name} has changed"
        for name in expected.keys() & found.keys()
        if found[name].stat().st_size != expected[name].size or _stored(found[name]) != expected[name]
    ]
    if faults:
        raise TrainingError(
            f"{checkpoint.name} is not as it was written: {'; '.join(sorted(faults))}", where=str(checkpoint), fix=fix
        )


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """The newest whole checkpoint; what is newer was torn by a kill.

    The main process renames torn ones to `torn-...`, where nothing looks for them; the next checkpoint removes them.

    Raises:
        TrainingError: It, or the best checkpoint that it refers to, has been changed or is missing.
    """
    for folder in reversed(_numbered(checkpoints)):
        if (folder / SEAL).is_file():
            check_sealed(folder)
            _check_best(folder)
            return folder
        if process_state().is_main_process:
            torn = folder.with_name(f"torn-{folder.name}")
            shutil.rmtree(torn, ignore_errors=True)
            folder.rename(torn)
    return None


def read_state(checkpoint: Path) -> TrainerState:
    """The Trainer's state at a checkpoint.

    Raises:
        TrainingError: The file does not hold one.
    """
    path = checkpoint / TRAINER_STATE
    try:
        return TrainerState.load_from_json(str(path))
    except (ValueError, TypeError) as error:
        raise TrainingError(
            f"not a state of the Trainer: {error}", where=str(path), fix="remove the checkpoint, or start with --fresh"
        ) from error


def best_checkpoint(checkpoint: Path) -> Path:
    """The checkpoint with the best score up to a checkpoint, itself where no score decides.

    Found by its step: the path that the Trainer keeps is another once the run folder has been renamed.
    """
    step = read_state(checkpoint).best_global_step
    return checkpoint.with_name(f"checkpoint-{step}") if step else checkpoint


def rotate(checkpoints: Path, *, keep: int, best: int | None) -> None:
    """Removes torn checkpoints and all whole ones but `keep`, the newest and the best among them.

    A checkpoint loses its seal first, so that half a removal is not taken for a whole checkpoint.
    """
    whole = [folder for folder in _numbered(checkpoints) if (folder / SEAL).is_file()]
    kept = {folder for folder in whole if folder == whole[-1] or folder.name == f"checkpoint-{best}"}
    for folder in reversed(whole):
        if len(kept) < keep:
            kept.add(folder)
    for folder in {*_numbered(checkpoints), *checkpoints.glob("torn-checkpoint-*")} - kept:
        (folder / SEAL).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


class SealCheckpoints(TrainerCallback):  # type: ignore[misc]
    """Seals each checkpoint once all processes have written it, then removes old ones.

    Args:
        keep: How many checkpoints stay.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 - the callback's signature
        model: nn.Module,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Runs after the Trainer's own files are written."""
        checkpoints = Path(args.output_dir)
        _check_weights(model, state.global_step, args.output_dir)
        processes = process_state()
        processes.wait_for_everyone()
        if processes.is_main_process:
            seal(checkpoints / f"checkpoint-{state.global_step}")
            rotate(checkpoints, keep=self.keep, best=state.best_global_step)


def _check_weights(model: nn.Module, step: int, where: str) -> None:
    """A finite loss may have gradients that are not: its weights must not become a checkpoint."""
    for name, parameter in model.named_parameters():
        held = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        if parameter.requires_grad and not bool(torch.isfinite(held).all()):
            raise TrainingError(
                f"{name} holds numbers that are not finite after step {step}",
                where=where,
                fix=NOT_FINITE_FIX,
            )


def _check_best(checkpoint: Path) -> None:
    best = best_checkpoint(checkpoint)
    if best == checkpoint:
        return
    if not (best / SEAL).is_file():
        raise TrainingError(
            f"{checkpoint.name} refers to the best checkpoint {best.name}, which is missing or half removed",
            where=str(best),
            fix="restore it, or start anew with --fresh",
        )
    check_sealed(best)


def _numbered(checkpoints: Path) -> list[Path]:
    """Folders named `checkpoint-STEP`, by step."""
    steps = {
        int(match[1]): path
        for path in checkpoints.glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name))
    }
    return [steps[step] for step in sorted(steps)]


def _files(checkpoint: Path) -> dict[str, Path]:
    """The files of a checkpoint but its seal, by their path inside it."""
    return {
        path.relative_to(checkpoint).as_posix(): path
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path != checkpoint / SEAL
    }


def _stored(path: Path) -> StoredFile:
    size = path.stat().st_size
    return StoredFile(size, sha256_file(path) if size <= HASHED else None)
