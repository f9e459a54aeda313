"""Qwen3-VL collator: records to model inputs, one function for training and prediction.

The prompt is rendered once by the processor's own chat template; the target's tokens are appended to
it, so which tokens are learnt is known by construction and never searched for. Views and slices go in as
separate images in record order, never as a video, which would merge slices in pairs. Image tokens are never cut.

A batch without any image carries a black one on a masked position, which nothing sees: under ZeRO-3 every process
must run the vision tower in every pass, or the others wait for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from PIL import Image as PILImage
from torch import Tensor

from benchmarks import schema
from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.base import IGNORE, Length, Limits, batch_targets, pad, predicting
from collators.encoder import Encoder
from collators.sources import ImageSource

if TYPE_CHECKING:
    from transformers import Qwen3VLProcessor


class Qwen3VLCollator:
    """Turns records into a batch.

    Args:
        encoder: Prompt, image plan and codec.
        processor: The model's processor with the image budget set.
        images: Opens an image of a record as RGB; second argument says where for errors.
        targets: `True` appends the target and pads right (training); `False` pads left (generation).
        max_length: Limit on all tokens of a sample.
        max_target_tokens: Limit on the target's tokens, the end token not counted.
    """

    def __init__(
        self,
        encoder: Encoder,
        processor: Qwen3VLProcessor,
        images: ImageSource,
        *,
        targets: bool,
        max_length: int | None = None,
        max_target_tokens: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.processor = processor
        self.images = images
        self.targets = targets
        self.smaller = "lower images.max_pixels, or images.max_tokens for volumes"
        self.limits = Limits(length=max_length, target=max_target_tokens, smaller=self.smaller)
        tokenizer = processor.tokenizer
        image = processor.image_processor
        # Pixels of an image's side and area that make one token.
        self.block: int = image.patch_size * image.merge_size
        self.budget = (int(image.size["shortest_edge"]), int(image.size["longest_edge"]))
        self.image_id: int = processor.image_token_id
        self.pad_id: int = tokenizer.pad_token_id
        # Qwen's chat template closes every turn with this token; it is the one the model must learn to say.
        self.end_id: int = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def __call__(self, records: Sequence[Record]) -> dict[str, Tensor]:
        """Builds one batch.

        Returns:
            `input_ids`, `attention_mask`, `mm_token_type_ids` int64[B, L]; `pixel_values`
            float32[patches, C*T*P*P] and `image_grid_thw` int64[images, 3] in record and view order;
            with targets also `labels` int64[B, L] (-100 outside the target and its end token) and
            `logits_to_keep` bool[B, L], true at the positions that predict a supervised token.

        Raises:
            DataError: An image cannot be read, a sample is over a limit or has no target.
        """
        records = [self.encoder.shown(record) for record in records]
        pixels = self._pixels(records)
        texts = [self._prompt(record) for record in records]
        counts = self._expand(texts, pixels["image_grid_thw"], records)
        prompts = self.processor.tokenizer(texts, add_special_tokens=False)["input_ids"]
        targets = batch_targets(self, records, learn=self.targets)
        for record, prompt, target, images in zip(records, prompts, targets, counts, strict=True):
            self.check_length(record, Length(len(prompt) - images, images, len(target), len(record.images)))
        return {**self._pad(prompts, targets, blank=not sum(counts)), **pixels}

    def measure(self, records: Sequence[Record]) -> list[Length]:
        """Token counts without opening any image; the grid follows from the record's sizes."""
        records = [self.encoder.shown(record) for record in records]
        texts = [self._prompt(record) for record in records]
        prompts = self.processor.tokenizer(texts, add_special_tokens=False)["input_ids"]
        targets = batch_targets(self, records, learn=self.targets)
        return [
            Length(
                len(prompt) - len(record.images),
                self._all_image_tokens(record),
                len(target),
                len(record.images),
            )
            for record, prompt, target in zip(records, prompts, targets, strict=True)
        ]

    def _prompt(self, record: Record) -> str:
        messages = self.encoder.messages(record.ask())
        text: str = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def _all_image_tokens(self, record: Record) -> int:
        area = self._area(record)
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

    def _area(self, record: Record) -> tuple[int, int]:
        """Smallest and largest area in pixels of each image of a record, after resizing.

        Raises:
            DataError: The record has more images than its images may have tokens.
        """
        tokens = self.encoder.image_tokens
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

    def _pixels(self, records: Sequence[Record]) -> dict[str, Tensor]:
        """Pixels of all images; an image shared by several records of the batch is prepared once."""
        places: dict[tuple[schema.Image, tuple[int, int]], int] = {}
        opened: dict[tuple[int, int], list[tuple[int, PILImage.Image]]] = {}
        order: list[int] = []
        for record in records:
            area = self._area(record)
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

    def _expand(self, texts: list[str], grids: Tensor, records: Sequence[Record]) -> list[int]:
        """Repeats each image placeholder to its token count, in place; returns image tokens per record."""
        token = self.processor.image_token
        merge = self.processor.image_processor.merge_size**2
        tokens = iter((grids.prod(dim=1) // merge).tolist())
        counts = []
        for number, record in enumerate(records):
            pieces = texts[number].split(token)
            if len(pieces) != len(record.images) + 1:
                raise DataError(
                    f"the chat template shows {len(pieces) - 1} images, the record has {len(record.images)}",
                    where=record.place,
                    fix="use the processor's own chat template",
                )
            each = [next(tokens) for _ in record.images]
            texts[number] = pieces[0] + "".join(token * n + piece for n, piece in zip(each, pieces[1:], strict=True))
            counts.append(sum(each))
        return counts

    def check_length(self, record: Record, length: Length) -> None:
        """Raises `DataError` if the sample is over a limit; images are never cut to fit."""
        self.limits.check(record, length)

    def _pad(self, prompts: list[list[int]], targets: list[list[int]], *, blank: bool) -> dict[str, Tensor]:
        """Pads a batch; `blank` adds masked positions for the black image of a batch without images."""
        batch = pad(prompts, targets, self.pad_id, right=self.targets)
        if blank:
            batch = self._with_blank(batch)
        labels = batch.pop("labels")
        batch["mm_token_type_ids"] = (batch["input_ids"] == self.image_id).long()
        if self.targets:
            batch |= {"labels": labels, "logits_to_keep": predicting(labels)}
        return batch

    def _with_blank(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """One more column on the padded side, which holds the black image's one token in the first row."""
        fill = {"input_ids": self.pad_id, "attention_mask": 0, "labels": IGNORE}
        columns = {name: torch.full_like(values[:, :1], fill[name]) for name, values in batch.items()}
        columns["input_ids"][0] = self.image_id
        return {
            name: torch.cat([values, columns[name]] if self.targets else [columns[name], values], dim=1)
            for name, values in batch.items()
        }
