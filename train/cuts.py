"""How an optimiser step is cut into forward passes.

Every process makes the same number of forward passes in a step, because collective operations wait for all;
a process with nothing left repeats a sample with weight 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from recipes.running import Batch

OPEN = 8  # passes that are still filled up while questions of one image set stay together


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
        images: Its image set: samples with an equal one share their images.
        prefix: Tokens from the beginning to the end of the images, which those samples have in common.
    """

    tokens: int
    target: int
    weight: float = 1.0
    stratum: str | None = None
    task: str = ""
    block: tuple[str, ...] = ()
    images: Hashable = None
    prefix: int = 0


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


def cut_step(
    group: Sequence[int], samples: Sequence[Sample], batch: Batch, *, processes: int, packed: bool = False
) -> Step:
    """Cuts samples into micro-batches, longest first, and deals them out to the processes.

    With `batch.share_images` the samples of one image set stay together, as far as a pass has room for them.

    Args:
        group: Positions of the samples of the step.
        samples: All samples.
        batch: The recipe's batch section.
        processes: Number of processes.
        packed: Whether the collator makes one row of a pass, in which an image set is written once.
    """
    passes: list[_Pass] = []
    for unit in _units(group, samples, batch, packed=packed):
        open_passes = passes[-OPEN:] if batch.share_images else passes[-1:]
        place = next((each for each in open_passes if each.with_(unit, samples).fits(batch, packed=packed)), None)
        if place is None:
            place = _Pass()
            passes.append(place)
        place.add(unit, samples)
    micro = [MicroBatch(tuple(each.members), tuple(samples[i].weight for i in each.members)) for each in passes]
    filler = min(group, key=lambda i: (samples[i].tokens, -i))
    micro += [MicroBatch((filler,), (0.0,))] * (-len(passes) % processes)
    by_token = batch.loss_reduction == "token"
    items = sum(samples[i].weight * (samples[i].target if by_token else 1) for i in group)
    return Step(tuple(tuple(micro[rank::processes]) for rank in range(processes)), items)


def packed_tokens(members: Iterable[int], samples: Sequence[Sample]) -> int:
    """Tokens of a packed row at most; it has fewer where samples have more than their images in common."""
    sample = _Pass()
    sample.add(members, samples)
    return sample.tokens


@dataclass(slots=True)
class _Pass:
    """A forward pass that is being filled.

    Attributes:
        members: Positions of its samples.
        width: Tokens of its longest sample, up to which rows are padded.
        tokens: Tokens of all, the prefix of an image set counted once.
        sets: Its image sets.
    """

    members: list[int] = field(default_factory=list)
    width: int = 0
    tokens: int = 0
    sets: set[Hashable] = field(default_factory=set)

    def add(self, unit: Iterable[int], samples: Sequence[Sample]) -> None:
        for position in unit:
            sample = samples[position]
            self.members.append(position)
            self.width = max(self.width, sample.tokens)
            self.tokens += sample.tokens - (sample.prefix if sample.images in self.sets else 0)
            self.sets.add(sample.images)

    def with_(self, unit: Sequence[int], samples: Sequence[Sample]) -> _Pass:
        """The pass as it would be with these samples too."""
        other = _Pass(list(self.members), self.width, self.tokens, set(self.sets))
        other.add(unit, samples)
        return other

    def fits(self, batch: Batch, *, packed: bool) -> bool:
        if batch.max_tokens is None:
            return len(self.members) <= batch.size
        return (self.tokens if packed else len(self.members) * self.width) <= batch.max_tokens


def _units(group: Sequence[int], samples: Sequence[Sample], batch: Batch, *, packed: bool) -> list[list[int]]:
    """Samples that stay together, longest first: those of one image set, as many as fit into one pass; else each alone."""
    ordered = sorted(group, key=lambda i: (-samples[i].tokens, i))
    if not batch.share_images:
        return [[position] for position in ordered]
    sets: dict[Hashable, list[int]] = {}
    for position in ordered:
        sets.setdefault(samples[position].images, []).append(position)
    units: list[list[int]] = []
    for members in sets.values():
        units.append([])
        filled = _Pass()
        for position in members:
            if units[-1] and not filled.with_([position], samples).fits(batch, packed=packed):
                units.append([])
                filled = _Pass()
            filled.add([position], samples)
            units[-1].append(position)
    return sorted(units, key=lambda unit: (-packed_tokens(unit, samples), unit[0]))
