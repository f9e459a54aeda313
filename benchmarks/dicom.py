"""DICOM pixels to 8-bit grey, for nuclear medicine and any other single-channel image.

Order of the steps: stored values, rescale slope and intercept, window, photometric inversion
(MONOCHROME1), 8 bits. Windows:

* `nm`    counts of nuclear medicine: `255 * clip(v / p, 0, 1) ** 0.6` with `p` the frame's 99.7th percentile,
          so that a few bright pixels (bladder, injection site) do not hide the skeleton;
* `tags`  the file's window centre and width by its own VOI function (LINEAR if not named), the first
          window if there are several; `full` if the file has none;
* `full`  smallest to largest rescaled value of all frames of the file.

If no window is asked for it is `nm` for modality NM and `tags` otherwise. Other missing tags: slope 1,
intercept 0, MONOCHROME2. In enhanced multi-frame files the frame's own values go before shared ones,
those before the file's.

What is read of a file and what is refused: `benchmarks.dicom_file`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.dicom_file import Floats, first, lookup, opened, rescaled, stored
from benchmarks.errors import DataError

Window = Literal["nm", "tags", "full"]
WINDOWS: tuple[Window, ...] = ("nm", "tags", "full")
Greys = npt.NDArray[np.uint8]

NM_PERCENTILE, NM_GAMMA = 99.7, 0.6


def read_frames(path: Path, window: Window | None, *, where: str) -> tuple[list[Greys], Window]:
    """Reads all frames of a file.

    Args:
        path: DICOM file.
        window: One of `WINDOWS`, or `None` for the modality's default.
        where: What to call the file in messages; must not hold its name.

    Returns:
        One `uint8[rows, columns]` per frame, and the window that was used.

    Raises:
        DataError: As `benchmarks.dicom_file.opened`; the window cannot be applied.
    """
    with opened(path, where=where) as header:
        frames = [rescaled(header, pixels, number) for number, pixels in enumerate(stored(header))]
        chosen: Window = window or ("nm" if header.get("Modality") == "NM" else "tags")
        greys = _windowed(header, frames, chosen, where)
        inverted = header.get("PhotometricInterpretation") == "MONOCHROME1"
    return [255 - grey if inverted else grey for grey in greys], chosen


def _windowed(header: Any, frames: list[Floats], window: Window, where: str) -> list[Greys]:  # noqa: ANN401
    """Maps the rescaled values of all frames to 8 bits."""
    low, high = min(float(f.min()) for f in frames), max(float(f.max()) for f in frames)
    if low == high:
        raise DataError(
            "all pixels have the same value", where=where, fix="the file holds no picture: choose another one"
        )
    if window == "nm":
        return [_counts(frame, where) for frame in frames]
    greys = []
    for number, frame in enumerate(frames):
        width = lookup(header, number, "FrameVOILUTSequence", "WindowWidth")
        if window == "full" or width is None:
            if window == "tags" and "VOILUTSequence" in header:
                raise DataError(
                    "the display is described by a lookup table, not by a window", where=where, fix="use --window full"
                )
            greys.append(to_8_bits((frame - low) / (high - low)))
            continue
        centre = first(lookup(header, number, "FrameVOILUTSequence", "WindowCenter"), None)
        function = str(lookup(header, number, "FrameVOILUTSequence", "VOILUTFunction") or "LINEAR")
        greys.append(to_8_bits(voi(frame, centre, first(width, None), function)))
    return greys


def _counts(frame: Floats, where: str) -> Greys:
    top = float(np.percentile(frame, NM_PERCENTILE))
    if top <= 0:
        raise DataError("a frame holds no counts", where=where, fix="use --window full, or leave the frame out")
    return to_8_bits(np.clip(frame / top, 0, 1) ** NM_GAMMA)


def voi(values: Floats, centre: float, width: float, function: str) -> Floats:
    """DICOM PS3.3 C.11.2.1.2 and C.11.2.1.3; result in 0..1."""
    if function == "SIGMOID":
        return 1 / (1 + np.exp(-4 * (values - centre) / width))
    if function == "LINEAR_EXACT":
        return (values - centre) / width + 0.5
    if function != "LINEAR" or width < 1:
        raise ValueError("a window that the standard does not know")
    if width == 1:
        return np.where(values > centre - 0.5, 1.0, 0.0)
    return (values - (centre - 0.5)) / (width - 1) + 0.5


def to_8_bits(unit: Floats) -> Greys:
    """0..1 to 0..255, rounded; what lies outside is clipped."""
    return np.floor(np.clip(unit, 0, 1) * 255 + 0.5).astype(np.uint8)
