"""Training data: records through `datasets`, checked and measured before the first step."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean

from torch.utils.data import Subset
from tqdm import tqdm

from benchmarks.errors import DataError
from benchmarks.loading import RecordDataset, check_disjoint, load_split
from benchmarks.schema import Record
from collators.base import Collator, Length
from collators.frames import keeps_target
from collators.packing import image_set
from recipes.schema import Recipe
from train.cuts import Sample

CHUNK = 256


@dataclass(frozen=True, slots=True)
class Measured:
    """A split that is ready to train on.

    Attributes:
        records: Map-style dataset of records, over-long ones left out.
        lengths: Token counts of each record.
        samples: The same for the plan, with loss weight and stratum.
        dropped: Ids left out because they were over a limit (`batch.overlong: drop`).
        unseen: Ids left out because a target box is on a frame that is not shown (`frames.unseen`).
        cut_boxes: Target boxes on frames that are not shown, of records that stay (`frames.unseen: cut`).
    """

    records: Subset[Record]
    lengths: list[Length]
    samples: list[Sample]
    dropped: list[str]
    unseen: list[str] = field(default_factory=list)
    cut_boxes: int = 0

    @property
    def supervised(self) -> int:
        """Tokens that carry loss in one pass."""
        return sum(length.target for length in self.lengths)

    @property
    def per_sample(self) -> dict[str, dict[str, float]]:
        """Fewest, mean and most tokens that carry loss in a sample, by task: a wrong target mask shows here first."""
        tasks: dict[str, list[int]] = {}
        for sample in self.samples:
            tasks.setdefault(sample.task, []).append(sample.target)
        return {
            task: {"min": min(counts), "mean": round(mean(counts), 2), "max": max(counts)}
            for task, counts in sorted(tasks.items())
        }


def load_measured(recipe: Recipe, split: str, collator: Collator, *, limit: int | None, quiet: bool) -> Measured:
    """Reads a split and counts every sample's tokens, without opening an image.

    Raises:
        DataError: A record is over a limit and the recipe says `overlong: error`, or has a target box on a frame that
            is not shown and the recipe says `unseen: error`, or none is left.
    """
    records = RecordDataset(load_split(Path(recipe.data.dataset), split))
    count = len(records) if limit is None else min(limit, len(records))
    keep: list[int] = []
    lengths: list[Length] = []
    samples: list[Sample] = []
    dropped: list[str] = []
    unseen: list[str] = []
    sets: dict[Hashable, int] = {}
    cut = 0
    with tqdm(total=count, desc=f"measuring {split}", unit="record", disable=quiet) as bar:
        for start in range(0, count, CHUNK):
            chunk = [records[i] for i in range(start, min(start + CHUNK, count))]
            hidden = [_hidden_boxes(recipe, collator, record) for record in chunk]
            unseen += [record.id for record, boxes in zip(chunk, hidden, strict=True) if boxes is None]
            usable = [(i, record) for i, record in enumerate(chunk) if hidden[i] is not None]
            cut += sum(filter(None, hidden))
            measured = collator.measure([record for _, record in usable]) if usable else []
            for (offset, record), length in zip(usable, measured, strict=True):
                if _fits(recipe, collator, record, length):
                    keep.append(start + offset)
                    lengths.append(length)
                    name = (image_set(collator.encoder.shown(record)), length.head)
                    images = sets.setdefault(name, len(sets))
                    samples.append(_sample(recipe, record, length, images))
                else:
                    dropped.append(record.id)
            bar.update(len(chunk))
    if not keep:
        raise DataError(
            f"split {split} has no record to use", where=recipe.data.dataset, fix="raise the limits or prepare it"
        )
    subset: Subset[Record] = Subset(records, keep)  # type: ignore[arg-type]  # RecordDataset is torch-free
    return Measured(subset, lengths, samples, dropped, unseen, cut)


def _hidden_boxes(recipe: Recipe, collator: Collator, record: Record) -> int | None:
    """Target boxes on frames that are not shown; `None` if the record is to be left out for them.

    Raises:
        DataError: There are such boxes, and the recipe allows none.
    """
    seen = collator.encoder.shown(record)
    hidden = len(record.target.boxes) - len(seen.target.boxes)
    if hidden and recipe.frames.unseen == "error":
        raise DataError(
            f"{hidden} of {len(record.target.boxes)} target boxes are on frames that are not shown",
            where=record.place,
            fix="show all frames, or set frames.unseen: drop or cut",
        )
    return hidden if keeps_target(record, seen, recipe.frames) else None


def _sample(recipe: Recipe, record: Record, length: Length, images: int) -> Sample:
    """What the plan needs of a record; `images` numbers its image set.

    Raises:
        DataError: The sampler is to balance a stratum that the record does not have.
    """
    batch, label = recipe.batch, record.target.label
    weight = batch.class_weights.get(label, 1.0) if label is not None else 1.0
    sample = Sample(
        tokens=length.total,
        target=length.target,
        weight=weight,
        task=record.task,
        images=images,
        prefix=length.prefix if batch.share_images else 0,
    )
    if batch.sampler != "balanced":
        return sample
    block = (record.task, *(_stratum(record, key, "balance_within") for key in batch.balance_within))
    stratum = label if batch.balance == "label" else _stratum(record, batch.balance, "balance")
    return replace(sample, stratum=stratum, block=block)


def _stratum(record: Record, key: str, option: str) -> str:
    if key not in record.strata:
        raise DataError(
            f"the record has no stratum {key!r}; it has {', '.join(record.strata) or 'none'}",
            where=record.place,
            fix=f"name another one as batch.{option}" + (", or `label`" if option == "balance" else ""),
        )
    return record.strata[key]


def _check_pass(limit: int | None, record: Record, length: Length) -> None:
    """Raises `DataError` for a sample that alone is more than a forward pass may hold."""
    if limit is not None and length.total > limit:
        raise DataError(
            f"sample of {length.total} tokens is over batch.max_tokens {limit}, alone in a forward pass",
            where=record.place,
            fix="raise batch.max_tokens, lower images.max_pixels, choose slices of volumes (frames, images.max_tokens), or set "
            "batch.overlong: drop to leave such records out",
        )


def _fits(recipe: Recipe, collator: Collator, record: Record, length: Length) -> bool:
    try:
        collator.check_length(record, length)
        _check_pass(recipe.batch.max_tokens, record, length)
    except DataError:
        if recipe.batch.overlong == "error":
            raise
        return False
    return True


def check_splits(recipe: Recipe) -> None:
    """Refuses a group that is in the training and in the validation split."""
    if recipe.data.validation is not None:
        check_disjoint(Path(recipe.data.dataset), recipe.data.train, recipe.data.validation)


def describe(measured: Measured, name: str) -> str:
    """One line on a split: samples, image, text and supervised tokens, longest sample."""
    lengths: Sequence[Length] = measured.lengths
    longest = max(length.total for length in lengths)
    line = (
        f"{name}: {len(lengths):,} samples, {sum(item.images for item in lengths):,} image tokens, "
        f"{sum(item.text for item in lengths):,} prompt tokens, {measured.supervised:,} supervised tokens, "
        f"longest sample {longest:,} tokens"
    )
    if measured.dropped:
        line += f", {len(measured.dropped)} over-long samples dropped"
    if measured.unseen:
        line += f", {len(measured.unseen)} samples left out for boxes on frames that are not shown"
    return line + (f", {measured.cut_boxes} such boxes left out of targets" if measured.cut_boxes else "")
