"""Qwen3-VL collator: records to model inputs, one function for training and prediction.

The prompt is rendered once by the processor's own chat template; the target's tokens are appended to
it, so which tokens are learnt is known by construction and never searched for. Views and slices go in as
separate images in record order, never as a video, which would merge slices in pairs. Image tokens are never cut.

A batch without any image carries a black one on a masked position, which nothing sees: under ZeRO-3 every process
must run the vision tower in every pass, or the others wait for ever.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.base import IGNORE, Length, Limits, batch_targets, pad, predicting
from collators.encoder import Encoder
from collators.image_sets import KeptFeatures
from collators.packing import PackedRow, common_prefix, image_set, rope_positions
from collators.qwen3_vl_images import Qwen3VLImages
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
        share_images: Packs a batch into one row in which an image set is written once; see `collators.packing`.
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
        share_images: bool = False,
    ) -> None:
        self.encoder = encoder
        self.processor = processor
        self.targets = targets
        self.packs = share_images
        self.kept: KeptFeatures | None = None
        self.smaller = "lower images.max_pixels, or images.max_tokens for volumes"
        self.limits = Limits(length=max_length, target=max_target_tokens, smaller=self.smaller)
        self.pictures = Qwen3VLImages(processor, images, encoder.image_tokens)
        self.merge: int = processor.image_processor.merge_size
        tokenizer = processor.tokenizer
        self.image_id: int = processor.image_token_id
        self.pad_id: int = tokenizer.pad_token_id
        # Qwen's chat template closes every turn with this token; it is the one the model must learn to say.
        self.end_id: int = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def keep_pixels(self, kept: KeptFeatures) -> None:
        """Takes prepared pixels from where they are kept, and keeps others there."""
        self.pictures.kept_pixels = kept

    def __call__(self, records: Sequence[Record]) -> dict[str, Any]:
        """Builds one batch.

        Returns:
            `pixel_values` float32[patches, C*T*P*P] and `image_grid_thw` int64[images, 3], and of a padded batch
            `input_ids`, `attention_mask`, `mm_token_type_ids` int64[B, L], images in record and view order; with
            targets also `labels` int64[B, L] (-100 outside the target and its end token) and `logits_to_keep`
            bool[B, L], true at the positions that predict a supervised token.

            Of a packed one, with the images of each image set once: `input_ids` int64[1, L], `position_ids`
            int64[3, 1, L], `groups` (a list for each image set: tokens of its prefix, then of each segment; last a group of
            one token for the black image of a batch without any), with targets `labels` int64[1, L], `logits_to_keep`
            int64[1, S], the places that predict the S supervised tokens, and `owners` int64[S], the number of the record
            that each belongs to; without targets `order`, the number of the record of each segment.

            Where features are kept, `image_sets` takes the place of `pixel_values`.

        Raises:
            DataError: An image cannot be read, a sample is over a limit or has no target.
        """
        records = [self.encoder.shown(record) for record in records]
        prompts, targets = self._prompts(records), batch_targets(self, records, learn=self.targets)
        for record, prompt, target in zip(records, prompts, targets, strict=True):
            self.check_length(record, self._length(record, prompt, target))
        if self.packs:
            return self._pack(records, prompts, targets)
        pixels = self._pictures(records)
        grids = iter(self._grids(pixels))
        prompts = [
            self._expand(prompt, [next(grids) for _ in record.images])
            for record, prompt in zip(records, prompts, strict=True)
        ]
        return {**self._pad(prompts, targets, blank=not any(record.images for record in records)), **pixels}

    def measure(self, records: Sequence[Record]) -> list[Length]:
        """Token counts without opening any image; the grid follows from the record's sizes."""
        records = [self.encoder.shown(record) for record in records]
        prompts, targets = self._prompts(records), batch_targets(self, records, learn=self.targets)
        return [self._length(*sample) for sample in zip(records, prompts, targets, strict=True)]

    def _length(self, record: Record, prompt: list[int], target: list[int]) -> Length:
        """Token counts of a sample whose prompt has one token for each image."""
        images, pictures = self.pictures.tokens(record), len(record.images)
        head = prompt[: self._head(prompt)]
        prefix = len(head) - pictures + images if pictures else 0
        return Length(len(prompt) - pictures, images, len(target), pictures, prefix, hash(tuple(head)))

    def _head(self, prompt: list[int]) -> int:
        """Tokens of a prompt up to its last image."""
        return len(prompt) - prompt[::-1].index(self.image_id) if self.image_id in prompt else 0

    def _prompts(self, records: Sequence[Record]) -> list[list[int]]:
        """Prompts with one token for each image.

        Raises:
            DataError: The chat template shows another number of images than the record has.
        """
        texts = [self._prompt(record) for record in records]
        prompts: list[list[int]] = self.processor.tokenizer(texts, add_special_tokens=False)["input_ids"]
        for record, prompt in zip(records, prompts, strict=True):
            if (count := prompt.count(self.image_id)) != len(record.images):
                raise DataError(
                    f"the chat template shows {count} images, the record has {len(record.images)}",
                    where=record.place,
                    fix="use the processor's own chat template",
                )
        return prompts

    def _prompt(self, record: Record) -> str:
        messages = self.encoder.messages(record.ask())
        text: str = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def _pictures(self, records: Sequence[Record]) -> dict[str, Any]:
        """Pixels and grids of all images, or image sets in the place of the pixels."""
        return self.pictures.pixels(records) if self.kept is None else self.pictures.sets(records, self.kept)

    def _grids(self, pixels: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Height and width of each image in tokens."""
        return [(h // self.merge, w // self.merge) for _, h, w in pixels["image_grid_thw"].tolist()]

    def _expand(self, prompt: Sequence[int], grids: Sequence[tuple[int, int]]) -> list[int]:
        """Repeats each image token to the count of its image."""
        counts = iter(height * width for height, width in grids)
        return [token for each in prompt for token in [each] * (next(counts) if each == self.image_id else 1)]

    def _pack(
        self, records: Sequence[Record], prompts: Sequence[list[int]], targets: Sequence[list[int]]
    ) -> dict[str, Any]:
        """One row of all records, the images of each image set once."""
        groups: dict[Hashable, list[int]] = {}
        for number, (record, prompt) in enumerate(zip(records, prompts, strict=True)):
            # With the tokens around the images, so that images are never left out of a prefix.
            groups.setdefault((image_set(record), tuple(prompt[: self._head(prompt)])), []).append(number)
        leaders = [records[members[0]] for members in groups.values()]
        pixels = self._pictures(leaders)
        grids = iter(self._grids(pixels))
        row = PackedRow()
        for leader, members in zip(leaders, groups.values(), strict=True):
            shared = common_prefix([prompts[number] for number in members])
            own = [next(grids) for _ in leader.images]
            prefix = self._expand(prompts[members[0]][:shared], own)
            positions, start = rope_positions(prefix, self.image_id, own)
            row.begin(prefix, positions)
            for number in members:
                row.add(prompts[number][shared:], targets[number], start=start, owner=number)
        if not any(record.images for record in leaders):
            row.begin([self.image_id], torch.zeros(3, 1, dtype=torch.long))
        return {**(row.samples() if self.targets else row.prompts()), **pixels}

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
