"""Controls: what a system scores without looking at the right image.

`blank_image` shows the model black pictures, `shuffled_image` those of another patient; `majority` and
`prompt_only` need no model and learn from the train split (scintiground.md, section 7; sgmri.md, section 10, 32).
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from benchmarks import sgmri_priors
from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.priors import control_text, fit
from benchmarks.schema import Image, Record
from collators.codecs.registry import get_codec
from collators.codecs.scintiground_official import official_row
from infer.engines.base import Engine, Generated


class PriorEngine:
    """Answers from the train split's statistics; takes the place of a model."""

    def __init__(self, dataset: Path, control: str) -> None:
        self.control = control.removesuffix("_corrected")
        self.corrected = control.endswith("_corrected")
        self.priors = fit(official_row(record) for record in read_records(dataset, "train"))

    def generate(self, records: Sequence[Record]) -> list[Generated]:
        """See `infer.engines.base.Engine.generate`."""
        return [
            Generated(
                text=control_text(self.priors, official_row(record), control=self.control, corrected=self.corrected),
                finish="stop",
            )
            for record in records
        ]


class SgmriPriorEngine:
    """The same for SGMRI-VQA, in the form of its published training target."""

    codec_name = "sgmri_json"

    def __init__(self, dataset: Path, control: str) -> None:
        self.control = control
        self.codec = get_codec(self.codec_name)
        self.priors = sgmri_priors.fit(read_records(dataset, "train"))

    def generate(self, records: Sequence[Record]) -> list[Generated]:
        """See `infer.engines.base.Engine.generate`."""
        asks = [record.ask() for record in records]
        return [
            Generated(text=self.codec.encode(self.priors.answer(ask, self.control), ask), finish="stop") for ask in asks
        ]


# Benchmark -> the codec in whose form its controls answer, and what makes a control's engine from the prepared dataset.
PRIOR_ENGINES: Mapping[str, tuple[str, Callable[[Path, str], Engine]]] = {
    "scintiground": ("scintiground_json", PriorEngine),
    "sgmri": (SgmriPriorEngine.codec_name, SgmriPriorEngine),
}


def shuffle_images(records: Sequence[Record], seed: int) -> list[Record]:
    """Gives every record the images of another group that show the same views or frames.

    Groups are permuted without a fixed point within each set of groups whose images look alike in
    views, frames and sizes, so that boxes stay inside. Only the images' paths change. Slices that no such set
    has enough of are exchanged for those of any volume of their size, each for the one at its share of the volume.

    Raises:
        DataError: A group has no partner.
    """
    sets: dict[str, dict[tuple[Image, ...], None]] = defaultdict(dict)
    for record in records:
        sets[record.group][record.images] = None
    layouts: dict[tuple[tuple[object, ...], ...], list[tuple[str, tuple[Image, ...]]]] = defaultdict(list)
    for group, image_sets in sorted(sets.items()):
        for images in image_sets:
            layouts[_layout(images)].append((group, images))
    partner: dict[tuple[str, tuple[Image, ...]], tuple[Image, ...]] = {}
    rng = random.Random(seed)
    for members in layouts.values():
        rng.shuffle(members)
        images = members[0][1]
        if _is_lopsided(members) and _of_one_size(images) and all(image.frame is not None for image in images):
            continue
        _derange(members, partner)
    _exchange_slices(list(chain.from_iterable(layouts.values())), partner, rng)
    return [msgspec.structs.replace(record, images=partner[record.group, record.images]) for record in records]


def _layout(images: tuple[Image, ...]) -> tuple[tuple[object, ...], ...]:
    return tuple((image.view, image.frame, image.width, image.height) for image in images)


def _is_lopsided(members: Sequence[tuple[str, tuple[Image, ...]]]) -> bool:
    """Whether one group has more than half of the image sets, so that not all can go to others."""
    return max(Counter(group for group, _ in members).values()) * 2 > len(members)


def _exchange_slices(
    members: Sequence[tuple[str, tuple[Image, ...]]],
    partner: dict[tuple[str, tuple[Image, ...]], tuple[Image, ...]],
    rng: random.Random,
) -> None:
    """Finds a partner for each member without one: of the volumes, or of the single slices, of another group and its size."""
    alike: dict[tuple[object, ...], list[tuple[str, tuple[Image, ...]]]] = defaultdict(list)
    for member in members:
        if _of_one_size(member[1]):
            alike[_kind(member[1])].append(member)
    for group, images in members:
        if (group, images) in partner:
            continue
        others = [other for name, other in alike[_kind(images)] if name != group]
        if not others:
            raise _no_partner(group)
        other = rng.choice(others)
        partner[group, images] = tuple(
            msgspec.structs.replace(image, path=other[place * len(other) // len(images)].path)
            for place, image in enumerate(images)
        )


def _of_one_size(images: tuple[Image, ...]) -> bool:
    return len({(image.view, image.width, image.height) for image in images}) == 1


def _kind(images: tuple[Image, ...]) -> tuple[object, ...]:
    """What slices of one size and those in their place have in common."""
    first = images[0]
    return len(images) > 1, first.frame is not None, first.view, first.width, first.height


def _no_partner(group: str) -> DataError:
    return DataError(
        f"images of group {group!r} cannot be exchanged: too few other groups show the same views in the same size",
        fix="use blank_image instead, or a split with more groups",
    )


def _derange(
    members: list[tuple[str, tuple[Image, ...]]], partner: dict[tuple[str, tuple[Image, ...]], tuple[Image, ...]]
) -> None:
    """Pairs each member with one of another group: groups side by side on a circle, turned by the largest group."""
    sizes = Counter(group for group, _ in members)
    largest, size = sizes.most_common(1)[0]
    if _is_lopsided(members):
        raise _no_partner(largest)
    order = {group: number for number, group in enumerate(sizes)}
    circle = sorted(members, key=lambda member: order[member[0]])
    for number, member in enumerate(circle):
        partner[member] = circle[(number + size) % len(circle)][1]
