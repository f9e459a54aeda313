"""Where a collator's images come from: the dataset's files, or black pictures for a control."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL import Image as PILImage

from benchmarks import schema
from benchmarks.dataset import known_sha256
from benchmarks.errors import DataError
from benchmarks.images import load_image, resolve


class ImageSource(Protocol):
    """Where images come from."""

    def __call__(self, image: schema.Image, where: str, /) -> PILImage.Image:
        """Opens an image of a record as 8-bit RGB in native size; `where` is for errors."""
        ...

    def content(self, image: schema.Image, where: str, /) -> str:
        """What identifies the content of an image, without decoding it: two that differ never share it."""
        ...


@dataclass(frozen=True, slots=True)
class FolderImages:
    """Images below a root folder; size checked against the record."""

    root: Path

    def __call__(self, image: schema.Image, where: str) -> PILImage.Image:
        """Opens one image; see `benchmarks.images.load_image`."""
        return load_image(self.root, image, where=where)

    def content(self, image: schema.Image, where: str) -> str:
        """SHA-256 of the image's file.

        Raises:
            DataError: The path leaves the root, or the file cannot be read.
        """
        path = resolve(self.root, image.path, where=where)
        try:
            return known_sha256(path)
        except OSError as error:
            raise DataError(
                f"image file {path} cannot be read: {error}",
                where=where,
                fix="check the image's path; `python -m benchmarks prepare` takes the images' folder as --image-root",
            ) from error


@dataclass(frozen=True, slots=True)
class BlankImages:
    """Black pictures of the recorded size: what the question alone gives away."""

    def __call__(self, image: schema.Image, where: str) -> PILImage.Image:  # noqa: ARG002 - the protocol's arguments
        """A black picture of the image's native size."""
        return PILImage.new("RGB", (image.width, image.height))

    def content(self, image: schema.Image, where: str) -> str:  # noqa: ARG002 - the protocol's arguments
        """The size: pictures of one size are the same."""
        return f"black {image.width}x{image.height}"
