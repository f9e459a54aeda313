"""DICOM files: header, refusals and rescaled pixels, for `benchmarks.dicom` and `benchmarks.dicom_series`.

Only the tags listed here are read, so that names, private tags, institutions and identifiers never reach a variable of
this program; the one exception, the number of the series, is compared and then forgotten. For the same reason no message
repeats a message of the DICOM library or a file's name; files are called by their position on the command line.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.errors import DataError

Floats = npt.NDArray[np.float64]
TAGS = (
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


@contextlib.contextmanager
def opened(path: Path, *, where: str, tags: tuple[str, ...] = TAGS) -> Iterator[Any]:
    """Reads a file's header and refuses what has no rule here.

    Within the block, what the DICOM library would say is kept back and what it raises becomes a `DataError`.

    Args:
        path: DICOM file.
        where: What to call the file in messages; must not hold its name.
        tags: Tags to read.

    Yields:
        The header; pixels are decoded by `stored`.

    Raises:
        DataError: Missing, not DICOM, truncated, no decoder, colour, text burned into the picture, a lookup table
            instead of slope and intercept, or a fault met within the block.
    """
    try:
        import pydicom
    except ImportError as error:
        raise DataError("reading DICOM needs pydicom", fix="pip install 'medvlm-baselines[prep]'") from error
    if not path.is_file():
        raise DataError("the DICOM file does not exist", where=where, fix="check the path")
    unreadable = (pydicom.errors.InvalidDicomError, pydicom.errors.BytesLengthException, *_UNREADABLE)
    with silence():
        try:
            header = pydicom.dcmread(path, specific_tags=list(tags))
        except unreadable as error:
            raise _unreadable("not a readable DICOM file", error, where) from None
        try:
            _refuse(header, where)
            yield header
        except unreadable as error:
            raise _unreadable("the pixel data cannot be decoded", error, where) from None


def stored(header: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - pydicom is untyped
    """Stored values, shape (frames, rows, columns)."""
    if "PhotometricInterpretation" not in header:
        header.PhotometricInterpretation = "MONOCHROME2"
    pixels = np.asarray(header.pixel_array)
    return pixels if pixels.ndim == 3 else pixels[np.newaxis]


def rescaled(header: Any, pixels: npt.NDArray[Any], frame: int) -> Floats:  # noqa: ANN401 - pydicom is untyped
    """Stored values of a frame after slope and intercept, shape (rows, columns)."""
    slope = first(lookup(header, frame, "PixelValueTransformationSequence", "RescaleSlope"), 1.0)
    intercept = first(lookup(header, frame, "PixelValueTransformationSequence", "RescaleIntercept"), 0.0)
    values = pixels.astype(np.float64) * slope + intercept
    if not bool(np.isfinite(values).all()):
        raise ValueError("pixel values that are not finite")
    return values


def lookup(header: Any, frame: int, sequence: str, keyword: str) -> Any:  # noqa: ANN401 - pydicom is untyped
    """A value of the frame's functional groups, else of the shared ones, else of the file; else `None`."""
    per_frame = header.get("PerFrameFunctionalGroupsSequence") or []
    shared = header.get("SharedFunctionalGroupsSequence") or []
    for groups in [*per_frame[frame : frame + 1], *shared[:1]]:
        for item in groups.get(sequence) or []:
            if item.get(keyword) is not None:
                return item.get(keyword)
    return header.get(keyword)


def first(value: Any, default: float | None) -> float:  # noqa: ANN401 - pydicom is untyped
    """The first of several values; the default if there is none."""
    if value is None or value == "":
        value = default
    elif not isinstance(value, (str, float, int)):
        value = value[0]
    return float(value)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keeps warnings and log lines of the reading libraries back: they quote header values."""
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
