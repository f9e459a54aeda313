"""Where a collator's images come from: the dataset's files, or black pictures for a control."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image as PILImage

from benchmarks import schema
from benchmarks.images import load_image

# Opens an image of a record as 8-bit RGB in native size; the second argument says where, for errors.
ImageSource = Callable[[schema.Image, str], PILImage.Image]


@dataclass(frozen=True, slots=True)
class FolderImages:
    """Images below a root folder; size checked against the record."""

    root: Path

    def __call__(self, image: schema.Image, where: str) -> PILImage.Image:
        """Opens one image; see `benchmarks.images.load_image`."""
        return load_image(self.root, image, where=where)


@dataclass(frozen=True, slots=True)
class BlankImages:
    """Black pictures of the recorded size: what the question alone gives away."""

    def __call__(self, image: schema.Image, where: str) -> PILImage.Image:  # noqa: ARG002 - the protocol's arguments
        """A black picture of the image's native size."""
        return PILImage.new("RGB", (image.width, image.height))
