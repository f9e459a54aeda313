"""A volume of one's own -> PNG slices, a file of questions that `prepare generic` reads, and a note of how it was turned.

OUT/ID_slice_001.png ...    slice NNN is frame NNN of the questions
OUT/rows.jsonl              one row per question over all slices
OUT/ID_volume.json          plane, directions, spacing, window
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.dataset import write_atomic
from benchmarks.dicom_rows import ROWS, check_pseudonym, read_questions, write_rows
from benchmarks.dicom_series import read_series
from benchmarks.errors import DataError
from benchmarks.fastmri import slice_name
from benchmarks.volumes import Plane, Volume, VolumeWindow, directions, obliquity, plane_of, to_slices, turned
from benchmarks.volumes_read import HDF5, NIFTI, read_hdf5, read_nifti


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedVolume:
    """What `convert_volume` wrote.

    Attributes:
        rows: The file of questions.
        images: PNG files in frame order.
        questions: Number of rows; 0 if the questions are still to be written.
        note: Contents of `ID_volume.json`.
    """

    rows: Path
    images: tuple[Path, ...]
    questions: int
    note: dict[str, Any]


def convert_volume(
    paths: Sequence[Path],
    out: Path,
    *,
    pseudonym: str,
    plane: Plane = "native",
    window: VolumeWindow | None = None,
    number: int | None = None,
    questions: Path | None = None,
) -> ConvertedVolume:
    """Writes the slices of one volume.

    Args:
        paths: A NIfTI file, an HDF5 file, or DICOM files of one series or a folder of them.
        out: Folder to write to.
        pseudonym: Begins all file names and becomes the group.
        plane: Plane to cut, see `benchmarks.volumes`.
        window: Window, see there; by default that of the kind of file.
        number: Which volume of a 4-D NIfTI file, from 1.
        questions: Table of questions, as for `benchmarks.dicom_rows`; boxes are pixels of the slices as written.

    Raises:
        DataError: The files are not one readable volume, an option does not fit them, or the questions are not
            readable.
    """
    check_pseudonym(pseudonym)
    asked = read_questions(questions)
    volume = _read(paths, plane, number)
    greys, used = to_slices(volume, window)
    pictures = {out / slice_name(pseudonym, frame): grey for frame, grey in enumerate(greys, start=1)}
    note = _note(volume, used)
    base: dict[str, Any] = {
        "images": [path.name for path in pictures],
        "frame": list(range(1, len(pictures) + 1)),
        "group": pseudonym,
        "split": "test",
        "strata": {"plane": note["plane"]},
    }
    write_rows(out, pictures, base, asked)
    try:
        write_atomic(out / f"{pseudonym}_volume.json", msgspec.json.format(msgspec.json.encode(note)) + b"\n")
        for left in set(out.glob(f"{pseudonym}_slice_*.png")) - set(pictures):
            left.unlink()
    except OSError as error:
        raise DataError(
            f"cannot write: {error.strerror}", where=str(error.filename or out), fix="check space and permissions"
        ) from error
    return ConvertedVolume(rows=out / ROWS, images=tuple(pictures), questions=len(asked), note=note)


def _read(paths: Sequence[Path], plane: Plane, number: int | None) -> Volume:
    """The volume, turned."""
    names = [path.name.lower() for path in paths]
    where = "file 1 of the command line"
    single = [name for name in names if name.endswith((*NIFTI, *HDF5))]
    if single and len(paths) > 1:
        raise DataError(
            f"{len(paths)} files are given and one is NIfTI or HDF5", fix="give one volume: one such file, or a series"
        )
    if number is not None and not names[0].endswith(NIFTI):
        raise DataError("--volume is for NIfTI files that hold several volumes", fix="leave it out")
    if names[0].endswith(NIFTI):
        return read_nifti(paths[0], plane, number=number, where=where)
    volume = read_hdf5(paths[0], where=where) if single else read_series(_series(paths))
    return turned(volume, plane)


def _series(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """DICOM files and what to call them."""
    if len(paths) > 1 or not paths[0].is_dir():
        return [(path, f"DICOM file {number} of the command line") for number, path in enumerate(paths, start=1)]
    files = sorted(
        path for path in paths[0].iterdir() if path.is_file() and not path.name.startswith((".", "DICOMDIR"))
    )
    if not files:
        raise DataError("the folder holds no files", fix="give the folder that holds one series")
    return [(path, f"file {number} of the folder, by name") for number, path in enumerate(files, start=1)]


def _note(volume: Volume, window: str) -> dict[str, Any]:
    slices, height, width = volume.values.shape
    affine = volume.affine
    return {
        "slices": slices,
        "width": width,
        "height": height,
        "plane": "unknown" if affine is None else plane_of(affine),
        "directions": None if affine is None else directions(affine),
        "degrees_oblique": None if affine is None else round(obliquity(affine), 2),
        "spacing_mm": None if volume.spacing is None else [round(side, 4) for side in volume.spacing],
        "window": window,
        "boxes": "pixels of these slices, from the top left, after turning",
    }
