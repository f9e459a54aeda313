"""A volume of one's own as 8-bit slices: how it is turned and how its values become grey.

**Orientation.** Slices are turned as radiologists look at them, by what the file says of its place in the body; voxels
are moved, never interpolated:

| plane    | left of the picture | top      | frame 1                    |
|----------|---------------------|----------|----------------------------|
| axial    | patient's right     | anterior | lowest (inferior)          |
| coronal  | patient's right     | superior | most anterior              |
| sagittal | anterior            | superior | furthest left              |

Two arrays that describe the same anatomy so give the same slices, however they are stored. An oblique volume is shown in the
plane nearest to it; the angle is kept. `native` is the plane of acquisition: for DICOM the pictures exactly as they are
stored, in order of their positions along the slice normal; for NIfTI, which has no slices of its own, the plane across
the coarsest voxel side (axial, then coronal, if sides are equal to 1 %); for fastMRI's HDF5, which says nothing
of directions, the rows reversed, as `slices fastmri` has them.

Boxes are pixels of these slices, after turning.

**Grey values.** One window for the whole volume:

* `tags`         the DICOM files' own window; if it differs between slices, from the lowest lower to the highest upper end;
* `full`         smallest to largest value;
* `percentiles`  0.5th to 99.5th percentile;
* `slice`        each slice from 0 to its maximum, cut down to an integer: the rule of the SGMRI-VQA benchmark.

Without a choice it is `tags` for DICOM (`full` if it has none), `percentiles` for NIfTI and `slice` for HDF5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.dicom import Greys, to_8_bits, voi
from benchmarks.dicom_file import Floats
from benchmarks.errors import DataError
from benchmarks.fastmri import to_greys

Plane = Literal["native", "axial", "coronal", "sagittal"]
PLANES: Final[tuple[Plane, ...]] = ("native", "axial", "coronal", "sagittal")
VolumeWindow = Literal["tags", "full", "percentiles", "slice"]
VOLUME_WINDOWS: Final[tuple[VolumeWindow, ...]] = ("tags", "full", "percentiles", "slice")
PERCENTILES: Final = (0.5, 99.5)
# Where slices, rows and columns go: slices always along the cross product of row and column direction, as in DICOM.
DIRECTIONS: Final = MappingProxyType({"axial": "SPL", "coronal": "PIL", "sagittal": "RIP"})
# Nearest anatomical axis of a volume's slices (0: left-right, 1: back-front, 2: foot-head) -> plane.
_PLANE_OF_AXIS: Final[Mapping[int, Plane]] = MappingProxyType({2: "axial", 1: "coronal", 0: "sagittal"})
_EQUAL_SIDES = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TagWindow:
    """A window as DICOM files have it: centre, width and function."""

    centre: float
    width: float
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume as read.

    Attributes:
        values: Rescaled values; shape (slices, rows, columns), or any three axes before `turned`.
        affine: 3 x 3, one column per axis of `values`: its step in mm to the right, to the front and to the head of
            the patient; `None` if the file says nothing of it.
        window: The window that is used if none is asked for.
        tags: The files' own window, if they have one.
        inverted: Whether small values are bright (MONOCHROME1).
    """

    values: npt.NDArray[Any]
    affine: Floats | None
    window: VolumeWindow
    tags: TagWindow | None = None
    inverted: bool = False

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """Distance between slices, rows and columns in mm."""
        if self.affine is None:
            return None
        return tuple(float(side) for side in np.linalg.norm(self.affine, axis=0))


def acquired_plane(affine: Floats) -> Plane:
    """The plane across the coarsest voxel side; of equal ones axial comes first, then coronal."""
    sides = np.linalg.norm(affine, axis=0)
    nearest = _orientation(affine)[:, 0]
    coarse = {int(nearest[axis]) for axis in range(3) if sides[axis] >= (1 - _EQUAL_SIDES) * sides.max()}
    return _PLANE_OF_AXIS[max(coarse)]


def plane_of(affine: Floats) -> Plane:
    """The plane nearest to that of the slices (first axis)."""
    return _PLANE_OF_AXIS[int(_orientation(affine)[0, 0])]


def turned(volume: Volume, plane: Plane) -> Volume:
    """The volume with axes (slices, rows, columns) of a plane.

    Raises:
        DataError: The file does not say how it lies in the body.
    """
    if plane == "native":
        return volume
    if volume.affine is None:
        raise DataError(
            f"the file does not say how it lies in the body: no {plane} slices can be made",
            fix="use --plane native",
        )
    from nibabel import orientations

    move = orientations.ornt_transform(_orientation(volume.affine), orientations.axcodes2ornt(DIRECTIONS[plane]))
    values = orientations.apply_orientation(volume.values, move)
    step = orientations.inv_ornt_aff(move, volume.values.shape)[:3, :3]
    return replace(volume, values=values, affine=volume.affine @ step)


def directions(affine: Floats) -> str:
    """Where slices, rows and columns go, nearest of Left, Right, Anterior, Posterior, Superior, Inferior each."""
    from nibabel import orientations

    return "".join(orientations.ornt2axcodes(_orientation(affine)))


def obliquity(affine: Floats) -> float:
    """Largest angle between an axis of the volume and the nearest axis of the body, degrees."""
    cosines = np.abs(affine / np.linalg.norm(affine, axis=0)).max(axis=0)
    return float(np.degrees(np.arccos(np.clip(cosines, -1, 1))).max())


def to_slices(volume: Volume, window: VolumeWindow | None) -> tuple[list[Greys], str]:
    """8-bit slices, and the window that was used in words.

    Raises:
        DataError: All values are equal, or the window is not one of this kind of file.
    """
    low, high = float(volume.values.min()), float(volume.values.max())
    if low == high:
        raise DataError("all voxels have the same value", fix="the file holds no picture: choose another one")
    chosen = window or volume.window
    if chosen == "slice":
        greys, used = to_greys(volume.values), "slice: each from 0 to its maximum"
    elif chosen == "tags":
        tags = volume.tags
        if tags is None:
            raise DataError("the files have no window", fix="use --window full or --window percentiles")
        greys = [to_8_bits(voi(each, tags.centre, tags.width, tags.function)) for each in volume.values]
        used = f"tags: centre {tags.centre:g}, width {tags.width:g}, {tags.function}"
    else:
        if chosen == "percentiles":
            low, high = (float(value) for value in np.percentile(volume.values, PERCENTILES))
        if low == high:
            raise DataError(
                "the 0.5th and the 99.5th percentile are the same value",
                fix="the volume is all but empty: --window full",
            )
        greys = [to_8_bits((each - low) / (high - low)) for each in volume.values]
        used = f"{chosen}: {low:g} to {high:g}"
    return [255 - grey if volume.inverted else grey for grey in greys], used


def _orientation(affine: Floats) -> npt.NDArray[Any]:
    """Nearest anatomical axis and sign of each array axis, shape (3, 2).

    Raises:
        DataError: Axes that are not three different directions.
    """
    from nibabel import orientations

    whole = np.eye(4)
    whole[:3, :3] = affine
    found = np.asarray(orientations.io_orientation(whole)) if np.isfinite(affine).all() else np.full((3, 2), np.nan)
    if np.isnan(found).any():
        raise DataError(
            "the directions of the volume's axes cannot be told apart",
            fix="mend the file's affine or its image positions",
        )
    return found
