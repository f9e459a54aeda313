"""What every family's collator offers to training and prediction, and the parts that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.encoder import Encoder
from collators.image_sets import KeptFeatures
from collators.sources import ImageSource

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

IGNORE = -100


@dataclass(frozen=True, slots=True)
class Length:
    """Token counts of one sample.

    Attributes:
        text: Of the prompt, images left out.
        images: Of all its images.
        target: Of the target, with its end token.
        pictures: Images that the model sees; views on one canvas are one.
        prefix: From the first token to the last of an image: what samples of the same images have in common at least.
            0 where they cannot share it.
        head: Hash of those tokens, an image one of them: samples of the same images share a prefix if it is equal.
    """

    text: int
    images: int
    target: int
    pictures: int = 1
    prefix: int = 0
    head: int = field(default=0, compare=False)

    @property
    def total(self) -> int:
        """All tokens of the sample."""
        return self.text + self.images + self.target

    @property
    def image_pairs(self) -> int:
        """Pairs of image tokens that lie on the same picture; all pictures of a sample are taken to be of one size."""
        return self.images**2 // max(self.pictures, 1)


class Collator(Protocol):
    """Turns records into model inputs.

    Attributes:
        encoder: Prompt, image plan and codec.
        processor: The model's processor.
        pad_id: Token that fills rows up; the attention mask is 0 there.
        end_id: Token that ends an answer.
        smaller: What makes a sample of this family shorter, as advice in errors.
        packs: Whether a batch is one row of all samples, each image set written once.
        kept: Where features of image sets are kept; `None` has all pixels in the batch. It is set when the model is
            loaded, whose weights enter the keys.
    """

    encoder: Encoder
    processor: ProcessorMixin
    pad_id: int
    end_id: int
    smaller: str
    packs: bool
    kept: KeptFeatures | None

    def keep_pixels(self, kept: KeptFeatures) -> None:
        """Takes prepared pixels from where they are kept, and keeps others there."""
        ...

    def __call__(self, records: Sequence[Record]) -> dict[str, Any]:
        """Builds one batch.

        Returns:
            At least `input_ids` int64[B, L], B = 1 in a packed one; with targets also `labels` int64[B, L] (-100
            outside the target and its end token), `logits_to_keep`, the positions that predict a supervised token,
            and of a packed batch `owners` int64[S], the number of the record of each supervised token. Where features
            are kept, `image_sets` (`collators.image_sets.ImageSets`) takes the place of pixels.

        Raises:
            DataError: An image cannot be read, a sample is over a limit or has no target.
        """
        ...

    def measure(self, records: Sequence[Record]) -> list[Length]:
        """Token counts without opening any image."""
        ...

    def check_length(self, record: Record, length: Length) -> None:
        """Raises `DataError` if the sample is over a limit; images are never cut to fit."""
        ...


# Builds the inputs of `generate` for a batch of records: tensors, or what transformers takes in their place.
PromptInputs = Callable[[Sequence[Record]], dict[str, Any]]


class CollatorClass(Protocol):
    """A family's collator before it is given its encoder; see the classes for the arguments."""

    def __call__(
        self,
        encoder: Encoder,
        processor: ProcessorMixin,
        images: ImageSource,
        *,
        targets: bool,
        max_length: int | None = None,
        max_target_tokens: int | None = None,
        share_images: bool = False,
    ) -> Collator:
        """Makes a collator."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on a sample; `None` sets none.

    Attributes:
        length: On all tokens.
        target: On the target's tokens, the end token not counted.
        smaller: What makes a sample of this family shorter, as advice in errors.
    """

    length: int | None
    target: int | None
    smaller: str

    def check(self, record: Record, length: Length) -> None:
        """Raises `DataError` if the sample is over a limit."""
        if self.target is not None and length.target - 1 > self.target:
            raise DataError(
                f"target of {length.target - 1} tokens is over batch.max_target_tokens {self.target}",
                where=record.place,
                fix="raise the limit, or set batch.overlong: drop to leave such records out",
            )
        if self.length is not None and length.total > self.length:
            raise DataError(
                f"sample of {length.total} tokens ({length.images} of images) is over batch.max_length {self.length}; "
                "images are never cut",
                where=record.place,
                fix=f"raise the limit, {self.smaller}, or set batch.overlong: drop",
            )


def target_ids(tokenizer: PreTrainedTokenizerBase, encoder: Encoder, record: Record, end_id: int) -> list[int]:
    """Tokens of the text to learn and the end token.

    Raises:
        DataError: The text is empty.
    """
    text = encoder.target_text(record)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    if not ids:
        raise DataError("the target text is empty: nothing to learn", where=record.place, fix="mend the answer")
    return [*ids, end_id]


def batch_targets(collator: Collator, records: Sequence[Record], *, learn: bool) -> list[list[int]]:
    """The `target_ids` of each record; empty ones to generate."""
    if not learn:
        return [[] for _ in records]
    return [target_ids(collator.processor.tokenizer, collator.encoder, record, collator.end_id) for record in records]


def pad(prompts: Sequence[list[int]], targets: Sequence[list[int]], pad_id: int, *, right: bool) -> dict[str, Tensor]:
    """Rows of prompt and target, filled up to the longest.

    Args:
        prompts: Prompt ids of each row.
        targets: Target ids of each row with the end token; empty to generate.
        pad_id: What rows are filled up with.
        right: Where: right to train, left to generate, since new tokens must follow the prompt directly.

    Returns:
        `input_ids`, `attention_mask` and `labels` int64[B, L].
    """
    rows = [prompt + target for prompt, target in zip(prompts, targets, strict=True)]
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, IGNORE)
    for number, (row, target) in enumerate(zip(rows, targets, strict=True)):
        start = 0 if right else width - len(row)
        end = start + len(row)
        ids[number, start:end] = torch.tensor(row)
        mask[number, start:end] = 1
        labels[number, end - len(target) : end] = torch.tensor(target, dtype=torch.long)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def predicting(labels: Tensor) -> Tensor:
    """bool[B, L], true at the positions that predict a supervised token: one before each."""
    return torch.cat([labels[:, 1:] != IGNORE, torch.zeros(len(labels), 1, dtype=torch.bool)], dim=1)
