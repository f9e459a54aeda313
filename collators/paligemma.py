"""PaliGemma collator: records to model inputs, one function for training and prediction.

A sample is one canvas and three runs of tokens: the image's, the prompt with its begin token and a newline (the
prefix, in which every position sees every other), and the target with its end token (the suffix, causal and
supervised). Where one ends and the next begins is known by construction; `token_type_ids` tells the model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.base import IGNORE, Length, Limits, batch_targets, pad, predicting
from collators.canvas import draw_canvas
from collators.encoder import Encoder
from collators.image_sets import KeptFeatures, Pixels, collect, prepared
from collators.sources import ImageSource
from recipes.errors import RecipeError

if TYPE_CHECKING:
    from transformers import PaliGemmaProcessor

# Between prompt and answer, as the model was trained (huggingface.co/docs/transformers/model_doc/paligemma).
NEWLINE = "\n"


class PaliGemmaCollator:
    """Turns records into a batch.

    Args:
        encoder: Prompt, canvas and codec.
        processor: The model's processor.
        images: Opens an image of a record as RGB; second argument says where for errors.
        targets: `True` appends the target and pads right (training); `False` pads left (generation).
        max_length: Limit on all tokens of a sample.
        max_target_tokens: Limit on the target's tokens, the end token not counted.
        share_images: A batch has each canvas once and says which sample sees which.

    Raises:
        RecipeError: The canvas has another size than the checkpoint's pictures.
    """

    def __init__(
        self,
        encoder: Encoder,
        processor: PaliGemmaProcessor,
        images: ImageSource,
        *,
        targets: bool,
        max_length: int | None = None,
        max_target_tokens: int | None = None,
        share_images: bool = False,
    ) -> None:
        if encoder.canvas is None:
            raise ValueError("a PaliGemma encoder needs a canvas; the recipe schema asks for one")
        size = processor.image_processor.size
        if (size["height"], size["width"]) != (encoder.canvas.size, encoder.canvas.size):
            raise RecipeError(
                f"the checkpoint sees pictures of {size['width']}x{size['height']} pixels, the canvas has {encoder.canvas.size}",
                where="canvas.size",
                fix=f"set canvas.size={size['height']}, or take a checkpoint of the other size",
            )
        self.encoder = encoder
        self.processor = processor
        self.images = images
        self.targets = targets
        self.shares = share_images
        self.kept: KeptFeatures | None = None
        self._kept_pixels: KeptFeatures | None = None
        self.packs = False  # image and prompt see each other, so that no prefix is the same for two questions
        self.canvas = encoder.canvas
        self.smaller = "shorten the prompt, take a checkpoint for smaller pictures"
        self.limits = Limits(length=max_length, target=max_target_tokens, smaller=self.smaller)
        tokenizer = processor.tokenizer
        self.image_ids: list[int] = [processor.image_token_id] * processor.image_seq_length
        self.begin_id: int = tokenizer.bos_token_id
        self.pad_id: int = tokenizer.pad_token_id
        self.end_id: int = tokenizer.eos_token_id

    def __call__(self, records: Sequence[Record]) -> dict[str, Any]:
        """Builds one batch.

        Returns:
            What `tokens` gives, and `pixel_values` float32[B, 3, S, S]; of shared images `pixel_values`
            float32[U, 3, S, S], each canvas once, and `canvas_of` int64[B], the number of each sample's canvas; where
            features are kept, `image_sets` alone.

        Raises:
            DataError: An image cannot be read, a sample is over a limit or has no target.
        """
        if self.kept is not None:
            return {**self.tokens(records), "image_sets": collect(self.kept, records, self)}
        pixels, places = self.canvases(records)
        if self.shares:
            return {**self.tokens(records), "pixel_values": pixels, "canvas_of": places}
        return {**self.tokens(records), "pixel_values": pixels[places]}

    def tokens(self, records: Sequence[Record]) -> dict[str, Tensor]:
        """The inputs but for the pixels.

        Returns:
            `input_ids`, `attention_mask` and `token_type_ids` (0 for image and prompt, 1 for the target) int64[B, L];
            with targets also `labels` int64[B, L] (-100 outside the target and its end token) and `logits_to_keep`
            bool[B, L], true at the positions that predict a supervised token.

        Raises:
            DataError: A sample is over a limit or has no target.
        """
        prompts, targets = self._prompts(records), batch_targets(self, records, learn=self.targets)
        for record, prompt, target in zip(records, prompts, targets, strict=True):
            self.check_length(record, self._length(prompt, target))
        batch = pad([[*self.image_ids, *prompt] for prompt in prompts], targets, self.pad_id, right=self.targets)
        labels = batch.pop("labels")
        batch["token_type_ids"] = (labels != IGNORE).long()
        if self.targets:
            batch |= {"labels": labels, "logits_to_keep": predicting(labels)}
        return batch

    def canvases(self, records: Sequence[Record]) -> tuple[Tensor, Tensor]:
        """The pixels of each canvas once, float32[U, 3, S, S], and the number of each record's canvas, int64[B]."""
        keys = [canvas_key(record) for record in records]
        unique = dict(zip(keys, records, strict=True))
        places = {key: place for place, key in enumerate(unique)}
        if self._kept_pixels is None:
            pixels = self._drawn(list(unique.values()))
        else:
            parts = prepared(self._kept_pixels, list(unique.values()), self)
            pixels = torch.cat([part["pixel_values"] for part in parts])
        return pixels, torch.tensor([places[key] for key in keys])

    def _drawn(self, records: Sequence[Record]) -> Tensor:
        """float32[B, 3, S, S]."""
        drawn = [draw_canvas(record, self.canvas, self.images) for record in records]
        pixels: Tensor = self.processor.image_processor(drawn, return_tensors="pt")["pixel_values"]
        return pixels

    def keep_pixels(self, kept: KeptFeatures) -> None:
        """Takes prepared pixels from where they are kept, and keeps others there."""
        self._kept_pixels = kept

    def identity(self, record: Record) -> Hashable:
        """See `collators.image_sets.Shows`."""
        return canvas_key(record)

    def describe(self, record: Record) -> tuple[list[str], dict[str, Any]]:
        """See `collators.image_sets.Shows`."""
        contents = [self.images.content(image, record.place) for image in record.images]
        stated = [(image.width, image.height, image.view) for image in record.images]
        return contents, {"canvas": self.canvas.model_dump(mode="json"), "images": stated}

    def prepare(self, record: Record) -> Pixels:
        """See `collators.image_sets.Shows`: `pixel_values` float32[1, 3, S, S]."""
        return {"pixel_values": self._drawn([record])}

    def measure(self, records: Sequence[Record]) -> list[Length]:
        """Token counts without opening any image."""
        pairs = zip(self._prompts(records), batch_targets(self, records, learn=self.targets), strict=True)
        return [self._length(prompt, target) for prompt, target in pairs]

    def check_length(self, record: Record, length: Length) -> None:
        """Raises `DataError` if the sample is over a limit; images are never cut to fit."""
        self.limits.check(record, length)

    def _length(self, prompt: list[int], target: list[int]) -> Length:
        return Length(len(prompt), len(self.image_ids), len(target))

    def _prompts(self, records: Sequence[Record]) -> list[list[int]]:
        """Begin token, prompt and newline of each record."""
        texts = [self._prompt(record) + NEWLINE for record in records]
        ids: list[list[int]] = self.processor.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [[self.begin_id, *each] for each in ids]

    def _prompt(self, record: Record) -> str:
        try:
            return self.encoder.prompt_text(record.ask())
        except DataError as error:
            raise DataError(error.message, where=record.place, fix=error.fix) from error


def canvas_key(record: Record) -> Hashable:
    """What two records must share for their canvases to be the same picture."""
    # With sizes, so that a record that states another one is still checked against the file.
    return tuple((image.path, image.width, image.height, image.view) for image in record.images)
