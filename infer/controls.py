"""Controls: what a system scores without looking at the right image.

`blank_image` shows the model black pictures, `shuffled_image` those of another patient; `majority` and
`prompt_only` need no model and learn from the train split (scintiground.md, section 7; sgmri.md, section 10, 32).
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
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
    views, frames and sizes, so that boxes stay inside. Only the images' paths change.

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
        _derange(members, partner)
    return [msgspec.structs.replace(record, images=partner[record.group, record.images]) for record in records]


def _layout(images: tuple[Image, ...]) -> tuple[tuple[object, ...], ...]:
    return tuple((image.view, image.frame, image.width, image.height) for image in images)


def _derange(
    members: list[tuple[str, tuple[Image, ...]]], partner: dict[tuple[str, tuple[Image, ...]], tuple[Image, ...]]
) -> None:
    """Pairs each member with one of another group: groups side by side on a circle, turned by the largest group."""
    sizes = Counter(group for group, _ in members)
    largest, size = sizes.most_common(1)[0]
    if size * 2 > len(members):
        raise DataError(
            f"images of group {largest!r} cannot be exchanged: too few other groups show the same views in the same size",
            fix="use blank_image instead, or a split with more groups",
        )
    order = {group: number for number, group in enumerate(sizes)}
    circle = sorted(members, key=lambda member: order[member[0]])
    for number, member in enumerate(circle):
        partner[member] = circle[(number + size) % len(circle)][1]
