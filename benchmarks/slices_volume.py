"""One fastMRI volume to a folder of PNG slices, whole or not at all.

A volume is done when its folder holds all its slices and `slices/VOLUME.json`, written last, still describes its
source. The folder is written under a hidden name and then renamed: a folder of the final name is never half full.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy.typing as npt
import PIL.Image

from benchmarks.dataset import write_atomic
from benchmarks.errors import DataError
from benchmarks.fastmri import Split, read_reconstruction, slice_folder, slice_name, to_greys, upright
from benchmarks.fastmri_plus import Organ

STATES = "slices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A volume to convert: its file, what it is, and whether so many slices are enough (fewer: no PNG is written)."""

    volume: str
    path: Path
    organ: Organ
    split: Split
    sequence: str | None
    least: int


class Done(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `slices/VOLUME.json` says of a volume that was converted.

    Attributes:
        volume: Name of the volume.
        organ: `brain` or `knee`.
        split: `train` or `val`.
        sequence: `FLAIR` or `T1`; `None` for knees.
        slices: Number of slices in the file.
        width: Columns of a slice.
        height: Rows of a slice.
        source_size: Bytes of the HDF5 file.
        source_mtime_ns: Its time of change, nanoseconds.
        png_bytes: Size of each PNG in frame order; empty if the volume has too few slices.
    """

    volume: str
    organ: Organ
    split: Split
    sequence: str | None
    slices: int
    width: int
    height: int
    source_size: int
    source_mtime_ns: int
    png_bytes: list[int]

    @property
    def folder(self) -> str:
        """Folder of the slices below `data/`."""
        return slice_folder(self.organ, self.split, self.sequence, self.volume)


def read_states(out: Path) -> dict[str, Done]:
    """Volume -> what was done, in order of names; a file that cannot be read counts as not there."""
    states = {}
    for path in sorted((out / STATES).glob("*.json")):
        try:
            states[path.stem] = msgspec.json.decode(path.read_bytes(), type=Done)
        except (msgspec.ValidationError, msgspec.DecodeError):
            continue
    return states


def in_order(out: Path, state: Done) -> bool:
    """Whether all PNGs of a state are there with the sizes they were written with."""
    folder = out / "data" / state.folder
    try:
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    except FileNotFoundError:
        sizes = {}
    expected = {slice_name(state.volume, frame): size for frame, size in enumerate(state.png_bytes, start=1)}
    return {name: size for name, size in sizes.items() if name.endswith(".png")} == expected


def is_done(out: Path, task: Task, state: Done | None) -> bool:
    """Whether a volume needs no work: same source, same place, all slices there, or none if there are too few."""
    if state is None or (state.organ, state.split, state.sequence) != (task.organ, task.split, task.sequence):
        return False
    try:
        source = task.path.stat()
    except OSError:
        # The conversion meets the same and says so.
        return False
    if (source.st_size, source.st_mtime_ns) != (state.source_size, state.source_mtime_ns):
        return False
    return bool(state.png_bytes) == (state.slices >= task.least) and in_order(out, state)


def convert_volume(out: Path, task: Task) -> Done | DataError:
    """Converts a volume, replacing what there is of it.

    Returns:
        What was done, or the fault of the file.

    Raises:
        DataError: The result cannot be written.
    """
    where = str(task.path)
    try:
        source = task.path.stat()
        values = read_reconstruction(task.path, where=where)
    except OSError as error:
        return DataError(f"the file cannot be read: {error.strerror}", where=where, fix="check the file and its rights")
    except DataError as error:
        return error
    slices, height, width = values.shape
    enough = slices >= task.least
    final = out / "data" / slice_folder(task.organ, task.split, task.sequence, task.volume)
    try:
        sizes = _write_slices(final, task.volume, values) if enough else []
        done = Done(
            volume=task.volume,
            organ=task.organ,
            split=task.split,
            sequence=task.sequence,
            slices=slices,
            width=width,
            height=height,
            source_size=source.st_size,
            source_mtime_ns=source.st_mtime_ns,
            png_bytes=sizes,
        )
        write_atomic(out / STATES / f"{task.volume}.json", msgspec.json.encode(done))
    except OSError as error:
        raise DataError(
            f"cannot write: {error.strerror}",
            where=str(error.filename or final),
            fix="check space and permissions; the same command continues",
        ) from error
    return done


def forget(out: Path, state: Done) -> None:
    """Takes back a volume: first the word that it is done, then its slices."""
    (out / STATES / f"{state.volume}.json").unlink(missing_ok=True)
    folder = out / "data" / state.folder
    if folder.is_dir():
        _clear(folder, state.volume)
        with contextlib.suppress(OSError):
            folder.rmdir()


def sweep(out: Path) -> None:
    """Removes what a killed run left half written; nothing of it ever had its final name."""
    for pattern in (".*.part", f"{STATES}/.*.part", "data_processing/*/.*.part", "data/*/.*.part", "data/*/*/.*.part"):
        for path in out.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _write_slices(final: Path, volume: str, values: npt.NDArray[Any]) -> list[int]:
    """Writes all PNGs of a volume; returns their sizes in bytes."""
    part = final.with_name(f".{volume}.{os.getpid()}.part")
    sizes = []
    try:
        part.mkdir(parents=True)
        for frame, grey in enumerate(to_greys(upright(values)), start=1):
            buffer = io.BytesIO()
            PIL.Image.fromarray(grey).save(buffer, "PNG")
            with (part / slice_name(volume, frame)).open("wb") as stream:
                sizes.append(stream.write(buffer.getvalue()))
                stream.flush()
                os.fsync(stream.fileno())
        if final.is_dir():
            _clear(final, volume)
        part.rename(final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return sizes


def _clear(folder: Path, volume: str) -> None:
    # Only what this module writes: a folder with other files in it then cannot be replaced, and an error says so.
    for path in folder.glob(f"{volume}_slice_*.png"):
        path.unlink()
