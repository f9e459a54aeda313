"""Room for a run on the disk: checked before its first step, and named when it runs out all the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from benchmarks.dataset import write_atomic
from models.costs import family_costs
from models.processes import uses_deepspeed
from models.vision_cache import feature_bytes
from models.vision_store import DiskStore
from train.checkpoints import CHECKPOINTS
from train.prepare import Prepared
from train.trainer import TrainingError

PROBE = 2**20
# Three channels in float32; Qwen3-VL has each picture twice, as two moments.
PIXEL_BYTES = 3 * 4 * 2
# Processor, settings, random states and the Trainer's log.
_BESIDE_WEIGHTS = 2**24


def checkpoint_bytes(prepared: Prepared) -> int:
    """Bytes that a checkpoint takes at most.

    Weights count in float32, and two moments of the optimiser; DeepSpeed adds its own copy of trained weights.
    """
    trained, every = (sum(pair[index] for pair in prepared.parameters.values()) for index in (0, 1))
    saved = every if prepared.recipe.adapter.kind == "full" else trained
    return 4 * saved + (12 if uses_deepspeed() else 8) * trained + _BESIDE_WEIGHTS


def cache_bytes(prepared: Prepared, out: Path) -> int:
    """Bytes by which features or pixels that the run keeps will grow on the disk of its folder, if those there are its own."""
    tokens = 0
    for split in filter(None, (prepared.train, prepared.validation)):
        sets = {sample.images: length.images for sample, length in zip(split.samples, split.lengths, strict=True)}
        tokens += sum(sets.values())
    if prepared.pixels is not None:
        area = family_costs(prepared.recipe.model.family).pixels_per_token(prepared.model.config)
        return _growth(prepared.pixels.store, tokens * area * PIXEL_BYTES, out)
    if prepared.kept is not None and isinstance(prepared.kept.store, DiskStore):
        return _growth(prepared.kept.store, feature_bytes(prepared.model, tokens), out)
    return 0


def _growth(store: DiskStore, size: int, out: Path) -> int:
    """Bytes that a store still takes of so many, on the disk of a folder; none on another disk."""
    if store.folder.stat().st_dev != out.stat().st_dev:
        return 0
    return max(0, min(store.limit, size) - store.counts.bytes)


def check_room(prepared: Prepared, out: Path) -> None:
    """Makes sure, before the first step, that the run folder can be written and has room for all that will be in it.

    That is the checkpoints that stay, the one being written before an old one goes, the best one or the model, and vision
    features that are kept on the same disk.

    Raises:
        TrainingError: Too little is free.
        OSError: The test file cannot be written.
    """
    probe = out / ".probe"
    write_atomic(probe, bytes(PROBE))
    probe.unlink()
    checkpoints = out / CHECKPOINTS
    present = sum(path.stat().st_size for path in checkpoints.glob("checkpoint-*/**/*") if path.is_file())
    count = prepared.recipe.train.keep_checkpoints + 2
    size = checkpoint_bytes(prepared)
    kept = cache_bytes(prepared, out)
    needed, free = count * size - present + kept, shutil.disk_usage(out).free
    if needed > free:
        torn = "".join(f", remove {path}" for path in sorted(checkpoints.glob("torn-checkpoint-*")))
        raise TrainingError(
            f"the run needs up to {_amount(needed)} more on the disk ({count} checkpoints of {_amount(size)}"
            f"{f', and {_amount(kept)} of vision features' if kept else ''}), "
            f"{_amount(free)} are free",
            where=str(out),
            fix=f"free space{torn}, lower train.keep_checkpoints{' or vision_cache_gib' if kept else ''}, or give another --out",
        )


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turns failures to write the run folder into a message.

    Raises:
        TrainingError: A full disk, a folder that may not be written, ...
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise _not_written(error, str(getattr(error, "filename", None) or out)) from error
    except RuntimeError as error:
        # Where torch.save failed to write, it says so in terms of the archive that it was writing.
        if "inline_container" not in str(error):
            raise
        free = _amount(shutil.disk_usage(out).free)
        raise _not_written(f"torch could not write a whole file, {free} are free ({error})", str(out)) from error


def _not_written(error: object, where: str) -> TrainingError:
    return TrainingError(
        f"the run cannot be written: {error}",
        where=where,
        fix="free space or mend permissions; the same command continues from the newest whole checkpoint",
    )


def _amount(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
