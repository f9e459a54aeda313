"""Qwen3-VL's images: how large each is shown, how many tokens that makes, and their pixels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image as PILImage
from torch import Tensor

from benchmarks import schema
from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.image_sets import KeptFeatures, Pixels, collect, prepared
from collators.sources import ImageSource

if TYPE_CHECKING:
    from transformers import Qwen3VLProcessor


class Qwen3VLImages:
    """Turns the images of records into patches.

    Args:
        processor: The model's processor with the image budget set.
        images: Opens an image of a record as RGB; second argument says where for errors.
        image_tokens: Largest number of tokens of a record's images together; `None` sets no limit.
    """

    def __init__(self, processor: Qwen3VLProcessor, images: ImageSource, image_tokens: int | None) -> None:
        self.processor = processor
        self.images = images
        self.image_tokens = image_tokens
        self.kept_pixels: KeptFeatures | None = None
        image = processor.image_processor
        # Pixels of an image's side and area that make one token.
        self.block: int = image.patch_size * image.merge_size
        self.budget = (int(image.size["shortest_edge"]), int(image.size["longest_edge"]))

    def tokens(self, record: Record) -> int:
        """Tokens of all images of a record, which follow from their sizes: no image is opened.

        Raises:
            DataError: As `area`, or an image cannot be patched.
        """
        area = self.area(record)
        return sum(self._image_tokens(image, area, record) for image in record.images)

    def _image_tokens(self, image: schema.Image, area: tuple[int, int], record: Record) -> int:
        smallest, largest = area
        processor = self.processor.image_processor
        try:
            patches = processor.get_number_of_image_patches(
                image.height, image.width, {"min_pixels": smallest, "max_pixels": largest}
            )
        except ValueError as error:
            raise DataError(
                f"image {image.path} of {image.width}x{image.height} cannot be patched: {error}",
                where=record.place,
                fix="crop or pad the image to a ratio below 200",
            ) from error
        return int(patches) // int(processor.merge_size) ** 2

    def area(self, record: Record) -> tuple[int, int]:
        """Smallest and largest area in pixels of each image of a record, after resizing.

        Raises:
            DataError: The record has more images than its images may have tokens.
        """
        tokens = self.image_tokens
        if tokens is None or not record.images:
            return self.budget
        share = tokens // len(record.images)
        if share < 1:
            raise DataError(
                f"{len(record.images)} images do not fit images.max_tokens {tokens}",
                where=record.place,
                fix="raise it, or show fewer slices: the section frames",
            )
        limit = share * self.block**2
        area = min(self.budget[0], limit), min(self.budget[1], limit)
        # The processor enlarges up to the smallest area at least, be it beyond the largest one.
        sizes = {(image.width, image.height): image for image in record.images}
        if any(self._image_tokens(image, area, record) > share for image in sizes.values()):
            return self.block**2, area[1]
        return area

    def sets(self, records: Sequence[Record], kept: KeptFeatures) -> dict[str, Any]:
        """What a batch shows, without opening images whose features are kept.

        Returns:
            `image_sets`, and `image_grid_thw` int64[images, 3] in record and view order, by which tokens are placed.

        Raises:
            DataError: An image cannot be read or patched.
        """
        places: list[Record | None] = [record for record in records if record.images] or [None]
        grids = [grid for record in places for grid in self._grids(record)]
        return {"image_sets": collect(kept, places, self), "image_grid_thw": torch.tensor(grids)}

    def identity(self, record: Record | None) -> Hashable:
        """See `collators.image_sets.Shows`; `None` is the black image of a batch without any."""
        return None if record is None else (record.images, self.area(record))

    def describe(self, record: Record | None) -> tuple[list[str], dict[str, Any]]:
        """See `collators.image_sets.Shows`."""
        if record is None:
            return ["black"], {"area": self.budget, "sizes": [(self.block, self.block)]}
        contents = [self.images.content(image, record.place) for image in record.images]
        # With the stated sizes, so that a record that states another one is still checked against the file.
        return contents, {"area": self.area(record), "sizes": [(image.width, image.height) for image in record.images]}

    def prepare(self, record: Record | None) -> Pixels:
        """See `collators.image_sets.Shows`."""
        return self._fresh([] if record is None else [record])

    def _grids(self, record: Record | None) -> list[tuple[int, int, int]]:
        """One, height and width in patches of each image, which follow from its size."""
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

        patch = self.processor.image_processor.patch_size
        smallest, largest = self.budget if record is None else self.area(record)
        sizes = [(self.block, self.block)] if record is None else [(each.height, each.width) for each in record.images]
        resized = (smart_resize(*size, self.block, smallest, largest) for size in sizes)
        return [(1, height // patch, width // patch) for height, width in resized]

    def pixels(self, records: Sequence[Record]) -> dict[str, Tensor]:
        """Pixels of all images, as kept or fresh; of a batch without any, those of a black one."""
        if self.kept_pixels is None:
            return self._fresh(records)
        places: list[Record | None] = [record for record in records if record.images] or [None]
        parts = prepared(self.kept_pixels, places, self)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _fresh(self, records: Sequence[Record]) -> dict[str, Tensor]:
        """Pixels of all images; an image shared by several records of the batch is prepared once."""
        places: dict[tuple[schema.Image, tuple[int, int]], int] = {}
        opened: dict[tuple[int, int], list[tuple[int, PILImage.Image]]] = {}
        order: list[int] = []
        for record in records:
            area = self.area(record)
            for image in record.images:
                # With the size, so that a record that states another one is still checked against the file.
                key = (image, area)
                if key not in places:
                    self._image_tokens(image, area, record)
                    places[key] = len(places)
                    opened.setdefault(area, []).append((places[key], self.images(image, record.place)))
                order.append(places[key])
        if not order:
            opened, order = {self.budget: [(0, PILImage.new("RGB", (self.block, self.block)))]}, [0]
        prepared = [(pictures, self._prepared(area, pictures)) for area, pictures in opened.items()]
        if len(prepared) == 1 and order == list(range(len(order))):
            # Every picture once, as the slices of a volume: nothing to put together, no second copy of the pixels.
            return prepared[0][1]
        parts: dict[int, tuple[Tensor, Tensor]] = {}
        for pictures, features in prepared:
            grids = features["image_grid_thw"]
            pixels = torch.split(features["pixel_values"], grids.prod(dim=1).tolist())
            parts |= {place: (pixels[i], grids[i]) for i, (place, _) in enumerate(pictures)}
        return {
            "pixel_values": torch.cat([parts[place][0] for place in order]),
            "image_grid_thw": torch.stack([parts[place][1] for place in order]),
        }

    def _prepared(self, area: tuple[int, int], pictures: Sequence[tuple[int, PILImage.Image]]) -> dict[str, Tensor]:
        """Pixels and grids of pictures, each resized to an area between two bounds."""
        features = self.processor.image_processor(
            [picture for _, picture in pictures],
            size={"shortest_edge": area[0], "longest_edge": area[1]},
            return_tensors="pt",
        )
        return {name: features[name] for name in ("pixel_values", "image_grid_thw")}
