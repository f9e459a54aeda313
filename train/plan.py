"""Which samples make up which optimiser step.

The plan is a pure function of the samples, the recipe's `batch` section, the seed and the number of
processes: a resumed run simply starts at a later step. The samples of a step depend neither on the
number of processes nor on how the step is cut (`train.cuts`), given the same number of samples per step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterator, Sequence

from recipes.running import Batch
from train.cuts import Sample, Step, cut_step, packed_tokens

WINDOW = 32  # steps whose samples are sorted by length together


class Plan:
    """All steps of a run.

    Args:
        samples: The training samples, in dataset order.
        batch: The recipe's batch section.
        seed: Seed of the order.
        processes: Number of processes.
        packed: Whether the collator makes one row of a forward pass; see `train.cuts.cut_step`.
    """

    def __init__(
        self, samples: Sequence[Sample], batch: Batch, *, seed: int, processes: int, packed: bool = False
    ) -> None:
        self.samples = samples
        self.batch = batch
        self.seed = seed
        self.processes = processes
        self.packed = packed
        self.per_step = batch.size * batch.accumulation * processes
        self.steps_per_epoch = math.ceil(len(samples) / self.per_step)

    def epoch(self, number: int) -> list[Step]:
        """The steps of an epoch, counted from 0; the last one takes what is left."""
        order = self._balanced(number) if self.batch.sampler == "balanced" else self._shuffled(number)
        if self.batch.share_images:
            order = self._gathered(order)
        groups = [order[start : start + self.per_step] for start in range(0, len(order), self.per_step)]
        if self.batch.group_by_length:
            groups = self._by_length(groups, number)
        if number == 0:
            # Memory runs out in the first step or never.
            longest = max(range(len(groups)), key=lambda i: self._largest(groups[i]))
            groups[0], groups[longest] = groups[longest], groups[0]
        return [
            cut_step(group, self.samples, self.batch, processes=self.processes, packed=self.packed) for group in groups
        ]

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

    def _largest(self, group: list[int]) -> int:
        """Tokens of the longest sample of a step; of all of them in one row where samples are packed."""
        return packed_tokens(group, self.samples) if self.packed else max(self.samples[i].tokens for i in group)

    def _gathered(self, order: list[int]) -> list[int]:
        """The same samples, those of one image set behind its first one: image sets come in random order."""
        sets: dict[Hashable, list[int]] = {}
        for position in order:
            sets.setdefault(self.samples[position].images, []).append(position)
        return [position for members in sets.values() for position in members]

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
            window.sort(key=self._length_of(window).__getitem__)
            cut = [window[i : i + self.per_step] for i in range(0, len(window), self.per_step)]
            rng.shuffle(cut)
            sorted_groups += cut
        return sorted_groups

    def _length_of(self, window: list[int]) -> dict[int, int]:
        """What samples are sorted by: their tokens; those of the longest of its image set, which stays together, if shared."""
        if not self.batch.share_images:
            return {i: self.samples[i].tokens for i in window}
        longest: dict[Hashable, int] = {}
        for i in window:
            images = self.samples[i].images
            longest[images] = max(longest.get(images, 0), self.samples[i].tokens)
        return {i: longest[self.samples[i].images] for i in window}
