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

Only the tags listed here are read, so that names, private tags, institutions and identifiers never
reach a variable of this program. For the same reason no message repeats a message of the DICOM library
or a file's name; files are called by their position on the command line.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.errors import DataError

Window = Literal["nm", "tags", "full"]
WINDOWS: tuple[Window, ...] = ("nm", "tags", "full")
Greys = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

NM_PERCENTILE, NM_GAMMA = 99.7, 0.6
_TAGS = (
    "Modality",
    "Rows",
    "Columns",
    "NumberOfFrames",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PlanarConfiguration",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "PixelData",
    "FloatPixelData",
    "DoubleFloatPixelData",
    "ExtendedOffsetTable",
    "ExtendedOffsetTableLengths",
    "RescaleSlope",
    "RescaleIntercept",
    "ModalityLUTSequence",
    "WindowCenter",
    "WindowWidth",
    "VOILUTFunction",
    "VOILUTSequence",
    "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence",
    "BurnedInAnnotation",
)
# What pydicom and its decoders raise on damaged files.
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    IndexError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    EOFError,
    struct.error,
)


def read_frames(path: Path, window: Window | None, *, where: str) -> tuple[list[Greys], Window]:
    """Reads all frames of a file.

    Args:
        path: DICOM file.
        window: One of `WINDOWS`, or `None` for the modality's default.
        where: What to call the file in messages; must not hold its name.

    Returns:
        One `uint8[rows, columns]` per frame, and the window that was used.

    Raises:
        DataError: Missing, not DICOM, truncated, no decoder, colour, text burned into the picture, or a
            lookup table instead of a window.
    """
    try:
        import pydicom
    except ImportError as error:
        raise DataError("reading DICOM needs pydicom", fix="pip install 'medvlm-baselines[prep]'") from error
    if not path.is_file():
        raise DataError("the DICOM file does not exist", where=where, fix="check the path")
    unreadable = (pydicom.errors.InvalidDicomError, pydicom.errors.BytesLengthException, *_UNREADABLE)
    with _silence():
        try:
            header = pydicom.dcmread(path, specific_tags=list(_TAGS))
        except unreadable as error:
            raise _unreadable("not a readable DICOM file", error, where) from None
        try:
            _refuse(header, where)
            stored = _stored(header)
            frames = [_rescaled(header, frame, number) for number, frame in enumerate(stored)]
            chosen: Window = window or ("nm" if header.get("Modality") == "NM" else "tags")
            greys = _windowed(header, frames, chosen, where)
            inverted = header.get("PhotometricInterpretation") == "MONOCHROME1"
        except unreadable as error:
            raise _unreadable("the pixel data cannot be decoded", error, where) from None
    return [255 - grey if inverted else grey for grey in greys], chosen


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps warnings and log lines of the DICOM libraries back: they quote tag values."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _unreadable(message: str, error: Exception, where: str) -> DataError:
    return DataError(
        f"{message} ({type(error).__name__})",
        where=where,
        fix="the file is truncated or damaged, or its compression needs a decoder: "
        "pip install 'medvlm-baselines[prep]', or export it uncompressed",
    )


def _refuse(header: Any, where: str) -> None:  # noqa: ANN401 - pydicom is untyped
    """Refuses what has no rule here."""
    if not any(name in header for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        raise DataError("the file holds no pixel data", where=where, fix="choose an image file of the study")
    photometric = header.get("PhotometricInterpretation", "MONOCHROME2")
    if photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise DataError(
            "the picture is not single-channel grey (MONOCHROME1 or MONOCHROME2)",
            where=where,
            fix="export colour pictures as PNG and use them with the generic reader",
        )
    if header.get("BurnedInAnnotation") == "YES":
        raise DataError(
            "the file says that text is burned into the picture; it may name the patient",
            where=where,
            fix="remove the text from the pixels and set BurnedInAnnotation to NO",
        )
    if "ModalityLUTSequence" in header:
        raise DataError(
            "stored values are mapped by a lookup table instead of slope and intercept",
            where=where,
            fix="export the picture with rescale slope and intercept, or as PNG",
        )


def _stored(header: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - pydicom is untyped
    """Stored values, shape (frames, rows, columns)."""
    if "PhotometricInterpretation" not in header:
        header.PhotometricInterpretation = "MONOCHROME2"
    pixels = np.asarray(header.pixel_array)
    return pixels if pixels.ndim == 3 else pixels[np.newaxis]


def _rescaled(header: Any, stored: npt.NDArray[Any], frame: int) -> Floats:  # noqa: ANN401 - pydicom is untyped
    slope = _first(_lookup(header, frame, "PixelValueTransformationSequence", "RescaleSlope"), 1.0)
    intercept = _first(_lookup(header, frame, "PixelValueTransformationSequence", "RescaleIntercept"), 0.0)
    values = stored.astype(np.float64) * slope + intercept
    if not bool(np.isfinite(values).all()):
        raise ValueError("pixel values that are not finite")
    return values


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
        width = _lookup(header, number, "FrameVOILUTSequence", "WindowWidth")
        if window == "full" or width is None:
            if window == "tags" and "VOILUTSequence" in header:
                raise DataError(
                    "the display is described by a lookup table, not by a window", where=where, fix="use --window full"
                )
            greys.append(_to_8_bits((frame - low) / (high - low)))
            continue
        centre = _first(_lookup(header, number, "FrameVOILUTSequence", "WindowCenter"), None)
        function = str(_lookup(header, number, "FrameVOILUTSequence", "VOILUTFunction") or "LINEAR")
        greys.append(_to_8_bits(_voi(frame, centre, _first(width, None), function)))
    return greys


def _counts(frame: Floats, where: str) -> Greys:
    top = float(np.percentile(frame, NM_PERCENTILE))
    if top <= 0:
        raise DataError("a frame holds no counts", where=where, fix="use --window full, or leave the frame out")
    return _to_8_bits(np.clip(frame / top, 0, 1) ** NM_GAMMA)


def _voi(values: Floats, centre: float, width: float, function: str) -> Floats:
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


def _to_8_bits(unit: Floats) -> Greys:
    return np.floor(np.clip(unit, 0, 1) * 255 + 0.5).astype(np.uint8)


def _lookup(header: Any, frame: int, sequence: str, keyword: str) -> Any:  # noqa: ANN401 - pydicom is untyped
    """A value of the frame's functional groups, else of the shared ones, else of the file; else `None`."""
    per_frame = header.get("PerFrameFunctionalGroupsSequence") or []
    shared = header.get("SharedFunctionalGroupsSequence") or []
    for groups in [*per_frame[frame : frame + 1], *shared[:1]]:
        for item in groups.get(sequence) or []:
            if item.get(keyword) is not None:
                return item.get(keyword)
    return header.get(keyword)


def _first(value: Any, default: float | None) -> float:  # noqa: ANN401 - pydicom is untyped
    """The first of several values; the default if there is none."""
    if value is None or value == "":
        value = default
    elif not isinstance(value, (str, float, int)):
        value = value[0]
    return float(value)
