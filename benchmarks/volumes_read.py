"""NIfTI and HDF5 files as volumes; files are called by their position on the command line, never by name."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dicom_file import silence
from benchmarks.errors import DataError
from benchmarks.fastmri import read_reconstruction, upright
from benchmarks.volumes import Plane, Volume, acquired_plane, directions, turned

NIFTI = (".nii", ".nii.gz")
HDF5 = (".h5", ".hdf5")
# What nibabel raises on damaged files, besides its own errors.
_UNREADABLE = (OSError, EOFError, ValueError, TypeError, KeyError, OverflowError, MemoryError, zlib.error)


def read_nifti(path: Path, plane: Plane, *, number: int | None, where: str) -> Volume:
    """Reads a NIfTI file, in any byte order, with its scaling, turned into slices.

    Args:
        path: `.nii` or `.nii.gz`.
        plane: The plane to cut, see `benchmarks.volumes`.
        number: Which volume of a 4-D file, from 1.
        where: What to call the file in messages.

    Raises:
        DataError: Damaged, not a picture of numbers, several volumes and none chosen, values that are not finite,
            or an unknown or contradictory position in the body.
    """
    try:
        import nibabel
        from nibabel.filebasedimages import ImageFileError
        from nibabel.spatialimages import HeaderDataError
    except ImportError as error:
        raise DataError("reading NIfTI needs nibabel", fix="pip install 'medvlm-baselines[prep]'") from error
    if not path.is_file():
        raise DataError("the NIfTI file does not exist", where=where, fix="check the path")
    unreadable = (ImageFileError, HeaderDataError, *_UNREADABLE)
    with silence():
        try:
            image = nibabel.load(path)
            affine = _affine(nibabel, image.header, where)
            values = np.asarray(image.dataobj[_chosen(image, number, where)])
        except unreadable as error:
            raise DataError(
                f"the NIfTI file cannot be read ({type(error).__name__})",
                where=where,
                fix="the file is truncated, damaged or another format: copy it again, or convert it to NIfTI",
            ) from None
    problem = ""
    if values.dtype.kind not in "fiu":
        problem = f"the voxels are {values.dtype.name}, not real numbers"
    elif not bool(np.isfinite(values).all()):
        problem = "the volume holds values that are not finite numbers"
    if problem:
        raise DataError(problem, where=where, fix="store a grey volume without NaN; 0 is a usual value for background")
    volume = Volume(values=values.astype(np.float64), affine=affine, window="percentiles")
    return turned(volume, acquired_plane(affine) if plane == "native" else plane)


def read_hdf5(path: Path, *, where: str) -> Volume:
    """Reads `reconstruction_rss` of a fastMRI file, rows reversed as the benchmark has them."""
    if not path.is_file():
        raise DataError("the HDF5 file does not exist", where=where, fix="check the path")
    return Volume(values=upright(read_reconstruction(path, where=where)), affine=None, window="slice")


def _affine(nibabel: Any, header: Any, where: str) -> Any:  # noqa: ANN401 - nibabel is untyped
    """Steps of the three axes in mm, from the sform, else the qform."""
    if not isinstance(header, nibabel.Nifti1Header):
        raise DataError("not a NIfTI file", where=where, fix="convert it to NIfTI")
    known = [
        (form, form[0][:3, :3]) for form in (header.get_sform(coded=True), header.get_qform(coded=True)) if form[1]
    ]
    if not known:
        raise DataError(
            "the file does not say how it lies in the body (neither sform nor qform is set)",
            where=where,
            fix="set one of them from the source of the volume; a guess could exchange left and right",
        )
    found = [np.asarray(steps, dtype=np.float64) for _, steps in known]
    if len({directions(steps) for steps in found}) > 1:
        raise DataError(
            f"sform and qform contradict each other: {' and '.join(directions(steps) for steps in found)}",
            where=where,
            fix="mend the wrong one; readers differ in which they follow",
        )
    return found[0]


def _chosen(image: Any, number: int | None, where: str) -> tuple[slice | int, ...]:  # noqa: ANN401 - nibabel is untyped
    """Index of the one volume that is meant."""
    shape = image.shape
    several = int(np.prod(shape[3:]))
    if len(shape) < 3 or 0 in shape:
        raise DataError(f"the file has shape {shape}, not that of a volume", where=where, fix="give a 3-D file")
    if (number is None and several > 1) or (number is not None and not 1 <= number <= several):
        asked = "none is chosen" if number is None else f"--volume {number} is not one of them"
        raise DataError(f"the file holds {several} volumes and {asked}", where=where, fix=f"--volume 1 to {several}")
    place = np.unravel_index((number or 1) - 1, shape[3:], order="F") if shape[3:] else ()
    return (slice(None), slice(None), slice(None), *(int(index) for index in place))
