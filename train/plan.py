"""Which samples make up which optimiser step, and how a step is cut into forward passes.

The plan is a pure function of the samples, the recipe's `batch` section, the seed and the number of
processes: a resumed run simply starts at a later step. The samples of a step depend neither on the
number of processes nor on how the step is cut, given the same number of samples per step. Every
process makes the same number of forward passes in a step, because collective operations wait for all;
a process with nothing left repeats a sample with weight 0.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recipes.schema import Batch

WINDOW = 32  # steps whose samples are sorted by length together


@dataclass(frozen=True, slots=True)
class Sample:
    """What the plan needs to know of a training sample.

    Attributes:
        tokens: All its tokens, images included.
        target: Its supervised tokens.
        weight: Weight of its loss.
        stratum: What `batch.sampler: balanced` balances, within `block`; `None` is a class of its own.
        task: Task of the record.
        block: Task and strata whose share of an epoch balancing keeps.
    """

    tokens: int
    target: int
    weight: float = 1.0
    stratum: str | None = None
    task: str = ""
    block: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward pass of one process: positions of samples, the weight of each (0 for a filler)."""

    samples: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One optimiser step.

    Attributes:
        parts: Micro-batches of each process, equally many for all.
        items: What the summed loss of the step is divided by: weighted supervised tokens, or weighted samples.
    """

    parts: tuple[tuple[MicroBatch, ...], ...]
    items: float


class Plan:
    """All steps of a run.

    Args:
        samples: The training samples, in dataset order.
        batch: The recipe's batch section.
        seed: Seed of the order.
        processes: Number of processes.
    """

    def __init__(self, samples: Sequence[Sample], batch: Batch, *, seed: int, processes: int) -> None:
        self.samples = samples
        self.batch = batch
        self.seed = seed
        self.processes = processes
        self.per_step = batch.size * batch.accumulation * processes
        self.steps_per_epoch = math.ceil(len(samples) / self.per_step)

    def epoch(self, number: int) -> list[Step]:
        """The steps of an epoch, counted from 0; the last one takes what is left."""
        order = self._balanced(number) if self.batch.sampler == "balanced" else self._shuffled(number)
        groups = [order[start : start + self.per_step] for start in range(0, len(order), self.per_step)]
        if self.batch.group_by_length:
            groups = self._by_length(groups, number)
        if number == 0:
            # Memory runs out in the first step or never.
            longest = max(range(len(groups)), key=lambda i: max(self.samples[s].tokens for s in groups[i]))
            groups[0], groups[longest] = groups[longest], groups[0]
        return [cut_step(group, self.samples, self.batch, processes=self.processes) for group in groups]

    def steps(self, first: int, total: int) -> Iterator[Step]:
        """Steps `first` (counted from 0) to `total`, over as many epochs as that takes."""
        for epoch in range(first // self.steps_per_epoch, math.ceil(total / self.steps_per_epoch)):
            start = epoch * self.steps_per_epoch
            yield from self.epoch(epoch)[max(first - start, 0) : total - start]

    def tokens(self, step: Step) -> int:
        """Tokens of a step's samples over all processes, images included; padding and fillers are left out."""
        return sum(
            self.samples[position].tokens
            for part in step.parts
            for micro in part
            for position, weight in zip(micro.samples, micro.weights, strict=True)
            if weight
        )

    def _shuffled(self, epoch: int) -> list[int]:
        order = list(range(len(self.samples)))
        random.Random(f"order:{self.seed}:{epoch}").shuffle(order)
        return order

    def _balanced(self, epoch: int) -> list[int]:
        """As many samples as the split has, each block keeping its share, its strata equally often.

        A stratum is read through in shuffled rounds that continue over the epochs, so that a sample of a small
        one comes back only after all others, and a large one is used whole, over several epochs.
        """
        order: list[int] = []
        for block in sorted({sample.block for sample in self.samples}):
            strata: dict[str | None, list[int]] = {}
            for position, sample in enumerate(self.samples):
                if sample.block == block:
                    strata.setdefault(sample.stratum, []).append(position)
            total = sum(map(len, strata.values()))
            for rank, name in enumerate(sorted(strata, key=str)):
                share = total // len(strata) + (rank < total % len(strata))
                order += self._rounds(strata[name], f"{':'.join(block)}:{name}", epoch * share, share)
        random.Random(f"mix:{self.seed}:{epoch}").shuffle(order)
        return order

    def _rounds(self, members: list[int], name: str, start: int, count: int) -> list[int]:
        """`count` entries from position `start` of the endless sequence of shuffled rounds over `members`."""
        found: list[int] = []
        for number in range(start // len(members), (start + count - 1) // len(members) + 1):
            shuffled = list(members)
            random.Random(f"round:{self.seed}:{name}:{number}").shuffle(shuffled)
            found += shuffled
        skip = start % len(members)
        return found[skip : skip + count]

    def _by_length(self, groups: list[list[int]], epoch: int) -> list[list[int]]:
        """Steps of similar lengths: samples are sorted within windows of steps, then the steps are shuffled."""
        rng = random.Random(f"length:{self.seed}:{epoch}")
        sorted_groups: list[list[int]] = []
        for start in range(0, len(groups), WINDOW):
            window = [sample for group in groups[start : start + WINDOW] for sample in group]
            window.sort(key=lambda i: self.samples[i].tokens)
            cut = [window[i : i + self.per_step] for i in range(0, len(window), self.per_step)]
            rng.shuffle(cut)
            sorted_groups += cut
        return sorted_groups


def cut_step(group: Sequence[int], samples: Sequence[Sample], batch: Batch, *, processes: int) -> Step:
    """Cuts samples into micro-batches, longest first, and deals them out to the processes.

    Args:
        group: Positions of the samples of the step.
        samples: All samples.
        batch: The recipe's batch section.
        processes: Number of processes.
    """
    ordered = sorted(group, key=lambda i: (-samples[i].tokens, i))
    cuts: list[list[int]] = []
    for position in ordered:
        if cuts and _has_room(cuts[-1], samples, batch):
            cuts[-1].append(position)
        else:
            cuts.append([position])
    micro = [MicroBatch(tuple(cut), tuple(samples[i].weight for i in cut)) for cut in cuts]
    micro += [MicroBatch((ordered[-1],), (0.0,))] * (-len(cuts) % processes)
    by_token = batch.loss_reduction == "token"
    items = sum(samples[i].weight * (samples[i].target if by_token else 1) for i in group)
    return Step(tuple(tuple(micro[rank::processes]) for rank in range(processes)), items)


def _has_room(cut: list[int], samples: Sequence[Sample], batch: Batch) -> bool:
    """Whether a shorter sample may join a micro-batch; its first sample is the longest and sets the padding."""
    if batch.max_tokens is None:
        return len(cut) < batch.size
    return (len(cut) + 1) * samples[cut[0]].tokens <= batch.max_tokens
