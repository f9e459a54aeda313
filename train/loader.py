"""From the plan to batches: worker processes read ahead, one micro-batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from benchmarks.schema import Record
from collators.base import Collator
from recipes.running import Batch
from train.cuts import MicroBatch
from train.loss import supervision, token_weights
from train.plan import Plan

Inputs = dict[str, Any]
Reduction = Literal["token", "sample"]


class Records(Protocol):
    """A map-style dataset of records."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Record: ...


@dataclass(frozen=True, slots=True)
class StepBatches:
    """The forward passes of one optimiser step on this process.

    Attributes:
        batches: Yields `passes` batches as they come from the workers: the collator's inputs with `targets` int64[S]
            and their `weights` float[S] in the place of labels.
        passes: Number of forward passes.
        items: What the summed loss of the step is divided by, over all processes.
    """

    batches: Iterator[Inputs]
    passes: int
    items: float


class _MicroBatches(Dataset[Inputs]):
    """Collates what the sampler hands over; lives in the workers."""

    def __init__(self, records: Records, collator: Collator, reduction: Reduction) -> None:
        self.records = records
        self.collator = collator
        self.reduction = reduction

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, micro: MicroBatch) -> Inputs:
        batch = self.collator([self.records[position] for position in micro.samples])
        targets, rows = supervision(batch.pop("labels"))
        # Of a packed batch, whose one row holds several samples, the collator says who owns a token.
        owners = batch.pop("owners", rows)
        return {
            **batch,
            "targets": targets,
            "weights": token_weights(owners, torch.tensor(micro.weights), self.reduction),
        }


class _Order(Sampler[MicroBatch]):
    """The micro-batches of one process, in order."""

    def __init__(self, micros: Iterator[MicroBatch]) -> None:
        self.micros = micros

    def __iter__(self) -> Iterator[MicroBatch]:
        return self.micros


def batches(
    records: Records, collator: Collator, micros: Iterator[MicroBatch], batch: Batch, *, pin: bool
) -> Iterator[Inputs]:
    """Collated micro-batches in the given order.

    Args:
        records: What the positions of a micro-batch count.
        collator: Collator with targets.
        micros: Micro-batches of this process.
        batch: The recipe's batch section.
        pin: Put batches into page-locked memory, for faster copies to a GPU.
    """
    loader = DataLoader(
        _MicroBatches(records, collator, batch.loss_reduction),
        sampler=_Order(micros),
        batch_size=None,
        num_workers=batch.workers,
        pin_memory=pin,
        # Else the workers' seed would be drawn from the generator that dropout continues from after resuming.
        generator=torch.Generator(),
    )
    return iter(loader)


class StepLoader:
    """What the Trainer iterates over: one `StepBatches` per optimiser step, from step `first` on.

    Its length is that of the whole run, so that the Trainer sees a single long epoch; which pass over the data a
    step belongs to is the plan's business.
    """

    def __init__(
        self,
        plan: Plan,
        records: Records,
        collator: Collator,
        *,
        rank: int,
        first: int,
        total: int,
        pin: bool,
    ) -> None:
        self.plan = plan
        self.dataset = records
        self.collator = collator
        self.rank = rank
        self.first = first
        self.total = total
        self.pin = pin

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[StepBatches]:
        micros = (micro for step in self.plan.steps(self.first, self.total) for micro in step.parts[self.rank])
        stream = batches(self.dataset, self.collator, micros, self.plan.batch, pin=self.pin)
        for step in self.plan.steps(self.first, self.total):
            passes = len(step.parts[self.rank])
            yield StepBatches(islice(stream, passes), passes, step.items)
