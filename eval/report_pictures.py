"""Embeds the images of a record in the report, each file once."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import PIL.Image

from benchmarks.errors import DataError
from benchmarks.images import load_image, resolve
from benchmarks.schema import Image

# Larger pictures are scaled down to this side, those with a frame to the smaller one, since a volume has
# tens of them; small ones are kept without loss.
MAX_SIDE, SLICE_SIDE = 512, 256
JPEG_QUALITY = 80
LOSSLESS_PIXELS = 128 * 256
# All pictures of a report, base64 included, so that the page stays below 20 MB with its tables.
BUDGET_BYTES = 15_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image file of the gallery.

    Attributes:
        number: Its number in the page.
        image: The record's description: native size, in which boxes are drawn.
        uri: Data URI; empty if the file cannot be shown.
        problem: Why it cannot be shown; empty if it can.
    """

    number: int
    image: Image
    uri: str
    problem: str


class PictureStore:
    """Holds pictures, each once, and keeps the sum of their sizes within a budget.

    Args:
        root: Image root of the dataset.
        budget: Bytes of data URIs, at most.
    """

    def __init__(self, root: Path, budget: int = BUDGET_BYTES) -> None:
        self._root = root
        self._left = budget
        self._pictures: dict[Image, Picture] = {}

    @property
    def pictures(self) -> Sequence[Picture]:
        """All pictures, in order of number."""
        return list(self._pictures.values())

    def add(self, images: Sequence[Image], *, where: str) -> bool:
        """Loads the images of a case; a file that cannot be shown gives its reason instead.

        Args:
            images: The record's images.
            where: Record, for the reason.

        Returns:
            Whether there was room; if not, none of them is held.
        """
        new = [image for image in dict.fromkeys(images) if image not in self._pictures]
        loaded = [self._load(image, where) for image in new]
        size = sum(len(uri) for uri, _ in loaded)
        if size > self._left:
            return False
        self._left -= size
        for image, (uri, problem) in zip(new, loaded, strict=True):
            self._pictures[image] = Picture(number=len(self._pictures), image=image, uri=uri, problem=problem)
        return True

    def get(self, image: Image) -> Picture:
        """The picture of an image that was added."""
        return self._pictures[image]

    def _load(self, image: Image, where: str) -> tuple[str, str]:
        try:
            if not resolve(self._root, image.path, where=where).is_file():
                return "", "image not found"
            side = MAX_SIDE if image.frame is None else SLICE_SIDE
            return data_uri(load_image(self._root, image, where=where), side), ""
        except DataError as error:
            return "", f"image cannot be shown: {error.message}"


def data_uri(picture: PIL.Image.Image, side: int = MAX_SIDE) -> str:
    """PNG for small pictures, else JPEG with at most `side` pixels on the longer side."""
    bands = picture.getbands()
    if bands == ("R", "G", "B") and len({picture.getchannel(band).tobytes() for band in bands}) == 1:
        picture = picture.convert("L")
    stream = io.BytesIO()
    if picture.width * picture.height <= LOSSLESS_PIXELS:
        kind = "png"
        picture.save(stream, "PNG", optimize=True)
    else:
        kind = "jpeg"
        picture.thumbnail((side, side), PIL.Image.Resampling.LANCZOS)
        picture.save(stream, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
