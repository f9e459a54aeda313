"""Opens image files by one rule, used by checks, training, prediction and reports alike.

The rule, in this order:

1. The file's orientation tag is applied, so that size and boxes belong to the picture as displayed.
2. Pixels become 8-bit RGB:

   | mode of the file                    | conversion                                                     |
   |-------------------------------------|----------------------------------------------------------------|
   | RGB, L, 1, P, CMYK, YCbCr, HSV      | Pillow's conversion; a bilevel pixel is 0 or 255               |
   | any of these with transparency      | composited on white                                            |
   | LA, PA, RGBA and premultiplied kin  | composited on white                                            |
   | I;16 (any byte order), I            | full 16-bit range: `round(value / 257)`; outside 0..65535: error |
   | F                                   | `round(255 * value)`; outside 0..1 or not a number: error      |
   | anything else                       | error                                                          |

A file with several frames is an error, since which one is meant would be a guess. So is a picture of
more than `MAX_PIXELS` pixels, which is refused before it is decoded.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageOps

from benchmarks import schema
from benchmarks.errors import DataError

MAX_PIXELS = 2**26
BACKGROUND = (255, 255, 255)
ORIENTATION_TAG = 0x0112
_SIDEWAYS = (5, 6, 7, 8)
_PLAIN = ("1", "L", "P", "RGB", "CMYK", "YCbCr", "HSV")
_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
# What Pillow's decoders raise on broken files; each was met by the fuzz test or is named in its code.
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, EOFError, IndexError, KeyError, OverflowError)
_UNREADABLE = (*_BROKEN, struct.error, zlib.error, PIL.Image.DecompressionBombError)


def open_image(path: Path, *, where: str = "") -> PIL.Image.Image:
    """Decodes an image file completely.

    Returns:
        RGB picture, 8 bits a channel, size (width, height) after the orientation tag.

    Raises:
        DataError: Missing, truncated, not an image, several frames, too large, or a mode without a rule.
    """
    with _opened(path, where) as image:
        try:
            image.load()
            upright = PIL.ImageOps.exif_transpose(image)
        except _UNREADABLE as error:
            raise _broken(path, where, error) from error
        return _to_rgb(upright, path, where)


def image_size(path: Path, *, where: str = "") -> tuple[int, int]:
    """Width and height in pixels after the orientation tag, from the file's header only.

    Raises:
        DataError: Missing, not an image, several frames, or too large.
    """
    with _opened(path, where) as image:
        try:
            sideways = image.getexif().get(ORIENTATION_TAG) in _SIDEWAYS
        except _UNREADABLE as error:
            raise _broken(path, where, error) from error
        width, height = image.size
        return (height, width) if sideways else (width, height)


def resolve(root: Path, relative: str, *, where: str = "") -> Path:
    """Path of a record's file under the image root.

    Raises:
        DataError: The path, symbolic links followed, lies outside the root.
    """
    try:
        path = (root / relative).resolve()
        inside = path.is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        # Null bytes, names that are too long, links that point at each other.
        raise DataError(f"not a usable image path: {relative!r}", where=where, fix="rename the file") from error
    if not inside:
        raise DataError(
            f"image path {relative!r} leaves the image root {root} (symbolic links are followed)",
            where=where,
            fix="pass as --image-root the folder that really holds the images",
        )
    return path


def load_image(root: Path, image: schema.Image, *, where: str) -> PIL.Image.Image:
    """Opens the image of a record and checks it against the record.

    Args:
        root: Image root of the dataset.
        image: The record's description of the image.
        where: File, row and record, for error messages.

    Returns:
        RGB picture of exactly the record's size.

    Raises:
        DataError: As `open_image`; the path leaves the root; the size is not the record's.
    """
    path = resolve(root, image.path, where=where)
    picture = open_image(path, where=where)
    if picture.size != (image.width, image.height):
        raise DataError(
            f"{path} is {picture.width}x{picture.height} pixels (orientation tag applied), "
            f"the record says {image.width}x{image.height}",
            where=where,
            fix="use the original images of the release: boxes are pixels of the size in the record",
        )
    return picture


def _opened(path: Path, where: str) -> PIL.Image.Image:
    """Reads the header and refuses what must not be decoded."""
    try:
        if not path.is_file():
            raise DataError(
                f"image file {path} does not exist",
                where=where,
                fix="check the image's path; `python -m benchmarks prepare` takes the images' folder as --image-root",
            )
        image = PIL.Image.open(path)
        frames = getattr(image, "n_frames", 1)
    except _UNREADABLE as error:
        raise _broken(path, where, error) from error
    problem = ""
    if image.width * image.height > MAX_PIXELS:
        problem = f"image file {path} has {image.width}x{image.height} pixels, more than the limit of {MAX_PIXELS}"
    elif frames != 1:
        problem = f"image file {path} holds {frames} frames, one is expected"
    if problem:
        image.close()
        raise DataError(problem, where=where, fix="store one picture of a usual size per file")
    return image


def _broken(path: Path, where: str, error: Exception) -> DataError:
    return DataError(
        f"image file {path} cannot be read: {type(error).__name__}: {error}",
        where=where,
        fix="the file is truncated, damaged or not an image: copy it again from its source",
    )


def _to_rgb(image: PIL.Image.Image, path: Path, where: str) -> PIL.Image.Image:
    mode = image.mode
    transparent = "transparency" in image.info
    try:
        if mode in _ALPHA or (mode in _PLAIN and transparent):
            return _on_background(image)
        if mode in _PLAIN:
            return image.convert("RGB")
    except _UNREADABLE as error:
        raise _broken(path, where, error) from error
    grey: np.ndarray | None = None
    if not transparent and (mode == "I" or mode.startswith("I;16")):
        grey = _rescaled(image, 65535)
    elif not transparent and mode == "F":
        grey = _rescaled(image, 1)
    if grey is None:
        raise DataError(
            f"image file {path}: pixel mode {mode}{' with transparency' if transparent else ''} or its value "
            "range has no rule for conversion to 8 bits",
            where=where,
            fix="store it as 8-bit or 16-bit grey, or 8-bit RGB",
        )
    return PIL.Image.fromarray(grey).convert("RGB")


def _on_background(image: PIL.Image.Image) -> PIL.Image.Image:
    # Pillow converts premultiplied modes only one step at a time.
    straight = {"La": "LA", "RGBa": "RGBA"}.get(image.mode, image.mode)
    layer = image.convert(straight).convert("RGBA")
    canvas = PIL.Image.new("RGBA", image.size, (*BACKGROUND, 255))
    return PIL.Image.alpha_composite(canvas, layer).convert("RGB")


def _rescaled(image: PIL.Image.Image, top: int) -> np.ndarray | None:
    """Values 0..top to `uint8[H, W]` 0..255; `None` if a value lies outside."""
    values = np.asarray(image).astype(np.float64)
    if not bool(np.all((values >= 0) & (values <= top))):
        return None
    return np.floor(values * 255 / top + 0.5).astype(np.uint8)
