"""What packed passes cost: the tokens of an image set once, whatever the number of its questions in a pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from collators.base import Length
from models.costs import MicroBatch
from recipes.running import Batch
from train.cuts import Sample
from train.plan import Plan


@dataclass(frozen=True, slots=True)
class PackedLoad:
    """The passes of the first epoch.

    Args:
        lengths: Token counts of each sample.
        images: Image set of each sample.
        passes: Positions of the samples of each pass.
        steps: Optimiser steps that they make up.
    """

    lengths: Sequence[Length]
    images: Sequence[Hashable]
    passes: list[tuple[int, ...]]
    steps: int

    @classmethod
    def of(
        cls, lengths: Sequence[Length], images: Sequence[Hashable], batch: Batch, *, seed: int, processes: int
    ) -> PackedLoad:
        """Plans an epoch; classes are not balanced, which changes what a step holds but not how it is packed."""
        samples = [
            Sample(tokens=length.total, target=length.target, images=name, prefix=length.prefix)
            for length, name in zip(lengths, images, strict=True)
        ]
        shuffled = batch.model_copy(update={"sampler": "shuffle"})
        steps = Plan(samples, shuffled, seed=seed, processes=processes, packed=True).epoch(0)
        passes = [micro.samples for step in steps for part in step.parts for micro in part if any(micro.weights)]
        return cls(lengths, images, passes, len(steps))

    def largest(self) -> MicroBatch:
        """The pass with most tokens."""
        return max(map(self._shape, self.passes), key=lambda shape: shape.width)

    def mean_step(self, count: Callable[[Length], float]) -> float:
        """What a mean step costs, by a formula for a sample alone.

        A question behind a prefix costs what the whole sample does, less what its prefix alone does.
        """
        total = 0.0
        for members in self.passes:
            for own in self._sets(members):
                first, *others = (self.lengths[i] for i in own)
                total += count(first) + sum(count(length) - count(_prefix(length)) for length in others)
        return total / self.steps

    def _sets(self, members: Sequence[int]) -> list[list[int]]:
        sets: dict[Hashable, list[int]] = {}
        for i in members:
            sets.setdefault(self.images[i], []).append(i)
        return list(sets.values())

    def _shape(self, members: Sequence[int]) -> MicroBatch:
        firsts = [self.lengths[own[0]] for own in self._sets(members)]
        own = [self.lengths[i] for i in members]
        tokens = sum(length.total for length in firsts) + sum(length.total - length.prefix for length in own)
        return MicroBatch(
            samples=1,
            width=tokens - sum(length.total - length.prefix for length in firsts),
            images=sum(length.images for length in firsts),
            supervised=sum(length.target for length in own),
            image_pairs=sum(length.image_pairs for length in firsts),
        )


def _prefix(length: Length) -> Length:
    """A sample's prefix as a sample without anything to learn."""
    return replace(length, text=length.prefix - length.images, target=0)
