"""The DICOM files of one series as a volume: classic slices or enhanced multi-frame files.

Slices are sorted by their position along the slice normal (Image Position and Image Orientation (Patient)), never by
file name or instance number. Two slices at one place, a gap, several series, sizes, orientations or pixel spacings are
errors, and so is a file without positions. Order of the steps for grey values as in `benchmarks.dicom`: stored values,
rescale slope and intercept (each slice its own), one window for the volume, photometric inversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dicom import voi
from benchmarks.dicom_file import TAGS, Floats, first, lookup, opened, rescaled, stored
from benchmarks.errors import DataError
from benchmarks.volumes import TagWindow, Volume

SERIES_TAGS = (
    *TAGS,
    "SeriesInstanceUID",
    "ImageType",
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "PixelSpacing",
)
# Files write cosines with 4 to 6 digits and positions (mm) with 2 or more; a gap is relative to the usual distance.
ANGLE_TOLERANCE = 1e-3
SAME_PLACE = 1e-3
GAP_TOLERANCE = 0.05
# DICOM counts to the left and to the back, the affine to the right and to the front.
_TO_RAS = np.array([-1.0, -1.0, 1.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """One frame: rescaled values, where it lies (mm, DICOM axes), and what must be equal in all."""

    values: Floats
    place: Floats
    rows: Floats
    columns: Floats
    spacing: tuple[float, float]
    inverted: bool
    window: TagWindow | None
    where: str


def read_series(files: Sequence[tuple[Path, str]]) -> Volume:
    """Reads all frames of all files.

    Args:
        files: Path, and what to call the file in messages.

    Returns:
        The volume, axes (slices, rows, columns), pictures as stored.

    Raises:
        DataError: As `benchmarks.dicom_file.opened`, or the files are not the slices of one volume.
    """
    slices: list[_Slice] = []
    series = None
    for path, where in files:
        with opened(path, where=where, tags=SERIES_TAGS) as header:
            number = header.get("SeriesInstanceUID")
            if slices and number != series:
                raise DataError(
                    "the file belongs to another series than those before it", where=where, fix="give one series"
                )
            series = number
            slices += _slices(header, where)
    _check_alike(slices)
    normal = np.cross(slices[0].columns, slices[0].rows)
    slices.sort(key=lambda each: float(normal @ each.place))
    step = _step(slices, normal)
    steps = [step, slices[0].rows * slices[0].spacing[0], slices[0].columns * slices[0].spacing[1]]
    return Volume(
        values=np.stack([each.values for each in slices]),
        affine=np.stack(steps, axis=1) * _TO_RAS[:, np.newaxis],
        window="full" if slices[0].window is None else "tags",
        tags=_one_window(slices),
        inverted=slices[0].inverted,
    )


def _slices(header: Any, where: str) -> list[_Slice]:  # noqa: ANN401 - pydicom is untyped
    if "MOSAIC" in (header.get("ImageType") or []):
        raise DataError(
            "the picture is a mosaic of many slices",
            where=where,
            fix="convert the series to NIfTI first (dcm2niix does it)",
        )
    inverted = header.get("PhotometricInterpretation") == "MONOCHROME1"
    slices = []
    for frame, pixels in enumerate(stored(header)):
        named = where if header.get("NumberOfFrames") in (None, 1) else f"frame {frame + 1} of {where}"
        place = lookup(header, frame, "PlanePositionSequence", "ImagePositionPatient")
        facing = lookup(header, frame, "PlaneOrientationSequence", "ImageOrientationPatient")
        if not place or not facing:
            raise DataError(
                "the file does not say where the slice lies (Image Position and Image Orientation (Patient))",
                where=named,
                fix="export the series with its positions; an order by file names or numbers would be a guess",
            )
        spacing = lookup(header, frame, "PixelMeasuresSequence", "PixelSpacing") or (1.0, 1.0)
        cosines = np.array([float(value) for value in facing]).reshape(2, 3)
        if not np.allclose(cosines @ cosines.T, np.eye(2), atol=0.01):
            raise ValueError("rows and columns that are not at right angles")
        slices.append(
            _Slice(
                values=rescaled(header, pixels, frame),
                place=np.array([float(value) for value in place]).reshape(3),
                columns=cosines[0],
                rows=cosines[1],
                spacing=(float(spacing[0]), float(spacing[1])),
                inverted=inverted,
                window=_window(header, frame, named),
                where=named,
            )
        )
    return slices


def _window(header: Any, frame: int, where: str) -> TagWindow | None:  # noqa: ANN401 - pydicom is untyped
    width = lookup(header, frame, "FrameVOILUTSequence", "WindowWidth")
    if width is None or width == "":
        if "VOILUTSequence" in header:
            raise DataError(
                "the display is described by a lookup table, not by a window",
                where=where,
                fix="export the series with window centre and width",
            )
        return None
    window = TagWindow(
        centre=first(lookup(header, frame, "FrameVOILUTSequence", "WindowCenter"), None),
        width=first(width, None),
        function=str(lookup(header, frame, "FrameVOILUTSequence", "VOILUTFunction") or "LINEAR"),
    )
    # Applied once here, so that a window that cannot be applied is a fault of this file.
    if not np.isfinite(voi(np.zeros(1), window.centre, window.width, window.function)).all():
        raise ValueError("a window that is not finite")
    return window


def _check_alike(slices: list[_Slice]) -> None:
    one = slices[0]
    for other in slices:
        problem = ""
        if other.values.shape != one.values.shape:
            problem = f"{_size(other)} pixels where the first slice has {_size(one)}"
        elif not np.allclose([other.rows, other.columns], [one.rows, one.columns], atol=ANGLE_TOLERANCE):
            problem = "another orientation than the first slice"
        elif not np.allclose(other.spacing, one.spacing, rtol=ANGLE_TOLERANCE):
            problem = "another pixel spacing than the first slice"
        elif other.inverted != one.inverted:
            problem = "MONOCHROME1 and MONOCHROME2 slices in one series"
        elif (other.window is None) != (one.window is None):
            problem = "some slices have a window and some have none"
        elif other.window and one.window and other.window.function != one.window.function:
            problem = "another window function than the first slice"
        if problem:
            raise DataError(problem, where=other.where, fix="give the files of one series of parallel slices")


def _size(one: _Slice) -> str:
    return f"{one.values.shape[1]}x{one.values.shape[0]}"


def _step(slices: list[_Slice], normal: Floats) -> Floats:
    """From one sorted slice to the next, mm.

    Raises:
        DataError: Two slices at one place, or a gap.
    """
    if len(slices) == 1:
        return normal
    gaps = np.diff([float(normal @ each.place) for each in slices])
    usual = float(np.median(gaps))
    # Ties first: with them the usual distance means nothing.
    problems = [(number, "two slices lie at the same place") for number in np.flatnonzero(gaps < SAME_PLACE)]
    problems += [
        (number, f"two neighbours are {gaps[number]:.3f} mm apart where slices usually are {usual:.3f} mm apart")
        for number in np.flatnonzero(np.abs(gaps - usual) > GAP_TOLERANCE * usual)
    ]
    for number, problem in problems:
        raise DataError(
            problem,
            where=f"{slices[number].where} and {slices[number + 1].where}",
            fix="give each slice of one volume once: one time point, echo or b value, and none left out",
        )
    step: Floats = (slices[-1].place - slices[0].place) / (len(slices) - 1)
    return step


def _one_window(slices: list[_Slice]) -> TagWindow | None:
    windows = [each.window for each in slices if each.window is not None]
    if not windows or len(set(windows)) == 1:
        return windows[0] if windows else None
    low = min(window.centre - window.width / 2 for window in windows)
    high = max(window.centre + window.width / 2 for window in windows)
    return TagWindow(centre=(low + high) / 2, width=high - low, function=windows[0].function)
