"""Inputs prepared ahead: worker processes read and prepare the images of the next questions while answers are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.base import Collator


@dataclass(frozen=True, slots=True)
class Readied:
    """Inputs of some records.

    Attributes:
        ids: Of all records.
        usable: Places of the records whose inputs could be built.
        failed: Place -> what is wrong, of every other one.
        inputs: The batch of the usable ones; empty without any.
    """

    ids: tuple[str, ...]
    usable: list[int]
    failed: dict[int, str]
    inputs: dict[str, Any]

    def pin_memory(self) -> Readied:
        """The same in page-locked memory."""
        pinned = {
            name: value.pin_memory() if hasattr(value, "pin_memory") else value for name, value in self.inputs.items()
        }
        return replace(self, inputs=pinned)


def ready(build: Callable[[Sequence[Record]], Mapping[str, Any]], records: Sequence[Record]) -> Readied:
    """Builds the inputs of all records whose inputs can be built.

    Args:
        build: A collator, or what takes its place.
        records: A batch.
    """
    ids = tuple(record.id for record in records)
    try:
        return Readied(ids, list(range(len(records))), {}, dict(build(records)))
    except DataError:
        pass  # at least one record is bad: find which, one by one
    usable: list[int] = []
    failed: dict[int, str] = {}
    for number, record in enumerate(records):
        try:
            build([record])
        except DataError as error:
            failed[number] = str(error)
        else:
            usable.append(number)
    return Readied(ids, usable, failed, dict(build([records[number] for number in usable])) if usable else {})


class _Batches(Dataset[Readied]):
    """What the workers prepare."""

    def __init__(self, collator: Collator, batches: Sequence[Sequence[Record]]) -> None:
        self.collator = collator
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Readied:
        return ready(self.collator, self.batches[number])


def prepared_ahead(
    collator: Collator, batches: Sequence[Sequence[Record]], *, workers: int, pin: bool
) -> Iterator[Readied]:
    """The inputs of batches, in order, prepared by worker processes.

    Args:
        collator: Builds a batch.
        batches: Records of each.
        workers: Worker processes, 1 or more; each is two batches ahead.
        pin: Put tensors into page-locked memory, for faster copies to a GPU.
    """
    loader = DataLoader(
        _Batches(collator, batches),
        batch_size=None,
        num_workers=workers,
        pin_memory=pin,
        # Else the workers' seed would be drawn from the generator of a training that is being validated.
        generator=torch.Generator(),
    )
    return iter(loader)
