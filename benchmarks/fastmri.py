"""fastMRI volumes as the SGMRI-VQA authors turned them into 8-bit slices.

Of a file `NAME.h5` the dataset `reconstruction_rss` is read, shape (slices, rows, columns). Rows are reversed, since
the fastMRI+ boxes were drawn on pictures turned so. Each slice by itself is divided by its maximum, after negative values
became 0, multiplied by 255 and cut down to an integer (254.99 becomes 254); a slice without a positive value is black.
The arithmetic is that of the file's own type (float32), as published: another type rounds otherwise. Nothing is
resized or cropped. Source: sgmri.md, section 2 (scripts/preprocessing of github.com/lamawmouk/SGMRIQA, a77adeb).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.errors import DataError
from benchmarks.fastmri_plus import Organ

Greys = npt.NDArray[np.uint8]
Split = Literal["train", "val", "test"]
DATASET = "reconstruction_rss"
SEQUENCES: Final = ("FLAIR", "T1")
SPLITS: Final[tuple[Split, ...]] = ("train", "val", "test")
_FIX_DAMAGED = "the file is truncated or damaged: copy it again from its archive, then run the same command"
# What h5py raises on damaged files.
_UNREADABLE = (OSError, KeyError, ValueError, TypeError, RuntimeError, OverflowError, MemoryError)


def find_volumes(folder: Path) -> list[Path]:
    """All `.h5` files below a folder, in order of their paths; linked folders are entered, each once."""
    seen: set[Path] = set()

    def walk(place: Path) -> Iterator[Path]:
        real = place.resolve()
        if real in seen:
            return
        seen.add(real)
        for path in sorted(place.iterdir()):
            if path.is_dir():
                yield from walk(path)
            elif path.suffix == ".h5" and not path.name.startswith("."):
                yield path

    return list(walk(folder))


def split_of(path: Path, top: Path) -> Split | None:
    """The split that a file's folders name: the nearest one with `train`, `val` or `test` as a word of its name.

    Returns:
        `train`, `val` or `test`; `None` if no folder from the file up to `top` names one, or one names two.
    """
    for folder in path.parents:
        words = re.split(r"[^a-z]+", (folder.name or folder.resolve().name).lower())
        named = [split for split in SPLITS if split in words]
        if named or folder == top:
            return named[0] if len(named) == 1 else None
    return None


def sequence_of(volume: str) -> str | None:
    """`FLAIR` or `T1` (pre and post contrast alike) by a brain volume's name, `None` for any other."""
    match = re.match(r"file_brain_AX(FLAIR|T1)(?:PRE|POST)?_", volume)
    return match[1] if match is not None else None


def slice_folder(organ: Organ, split: Split, sequence: str | None, volume: str) -> str:
    """Folder of a volume's slices below `data/`, as the release names it."""
    if organ == "brain":
        return f"{split}_labeled_raw_by_modality/{sequence}/{volume}"
    return f"knee_{split}_labeled_raw/{volume}"


def slice_name(volume: str, frame: int) -> str:
    """File name of a slice; frames are counted from 1."""
    return f"{volume}_slice_{frame:03d}.png"


def require_h5py() -> None:
    """Raises `DataError` if HDF5 files cannot be read here at all."""
    if importlib.util.find_spec("h5py") is None:
        raise DataError("reading HDF5 needs h5py", fix="pip install 'medvlm-baselines[prep]'")


def read_reconstruction(path: Path, *, where: str) -> npt.NDArray[Any]:
    """Reads `reconstruction_rss`.

    Args:
        path: fastMRI file.
        where: What to call the file in messages.

    Returns:
        Values as stored, shape (slices, rows, columns).

    Raises:
        DataError: h5py is missing; the file is damaged or not HDF5; the dataset is missing, empty, of another rank
            or kind; a value is not a finite number.
    """
    require_h5py()
    import h5py

    try:
        with h5py.File(path, "r") as file:
            stored = file.get(DATASET)
            if not isinstance(stored, h5py.Dataset):
                raise DataError(
                    f"no dataset {DATASET!r}, the file holds {', '.join(sorted(map(str, file))[:10]) or 'nothing'}",
                    where=where,
                    fix="take the training and validation files of fastMRI; test files have none",
                )
            _check_form(stored.shape, stored.dtype, where)
            values = np.asarray(stored[()])
    except _UNREADABLE as error:
        raise DataError(_reason(error), where=where, fix=_FIX_DAMAGED) from None
    if not bool(np.isfinite(values).all()):
        raise DataError(f"{DATASET} holds values that are not finite numbers", where=where, fix=_FIX_DAMAGED)
    return values


def upright(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Reverses the rows of all slices: the way up on which the boxes were drawn."""
    return values[:, ::-1, :]


def to_greys(values: npt.NDArray[Any]) -> list[Greys]:
    """One `uint8[rows, columns]` per slice by the rule above; rows stay in the order given."""
    return [_grey(each) for each in values]


def _grey(values: npt.NDArray[Any]) -> Greys:
    top = float(values.max())
    if top <= 0:
        return np.zeros(values.shape, np.uint8)
    scaled: Greys = ((np.maximum(values, 0) / top) * 255.0).astype(np.uint8)
    return scaled


def _reason(error: Exception) -> str:
    """What h5py means, without the file's name that some of its messages hold."""
    if "truncated file" in str(error):
        return "the file is truncated"
    if "signature not found" in str(error):
        return "not an HDF5 file"
    return f"the file cannot be read ({type(error).__name__})"


def _check_form(shape: tuple[int, ...] | None, dtype: np.dtype[Any], where: str) -> None:
    problem = ""
    if shape is None or len(shape) != 3:
        problem = f"{DATASET} has shape {shape}, expected (slices, rows, columns)"
    elif 0 in shape:
        problem = f"{DATASET} has shape {shape}: it is empty"
    elif dtype.kind not in "fiu":
        problem = f"{DATASET} holds {dtype}, expected real numbers"
    if problem:
        raise DataError(problem, where=where, fix="take the file as fastMRI distributes it")
