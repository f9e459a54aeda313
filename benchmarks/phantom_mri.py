"""The synthetic benchmark `phantom-mri`: brain and knee volumes with findings, drawn from a seed.

A volume is a stack of slices: a head whose size changes from slice to slice, or a knee of two bones. A finding is a
bright or dark ellipsoid that shows on some neighbouring slices; its kind follows from brightness and shape, so that no
question can be answered without looking. Some volumes have no finding, and most slices of the others have none.
`benchmarks.phantom_mri_release` writes volumes in the forms of fastMRI, fastMRI+ and SGMRI-VQA.

Everything is a function of `(seed, organ, volume number)`; nothing depends on order or on the machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from benchmarks.phantom_mri_anatomy import (
    XYWH,
    Floats,
    Organ,
    Pose,
    Spot,
    draw_brain,
    draw_knee,
    paint,
    pixel_box,
    radii,
)

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: label as in fastMRI+, brightness from 0 to 1, width and height as shares of the image side."""

    label: str
    brightness: float
    width: Span
    height: Span


# The first three of an organ differ most; small presets draw only those.
KINDS: Final = MappingProxyType(
    {
        "brain": (
            Kind("Mass", 0.95, (0.24, 0.32), (0.24, 0.32)),
            Kind("Edema", 0.75, (0.34, 0.42), (0.15, 0.20)),
            Kind("Lacunar infarct", 0.04, (0.16, 0.22), (0.16, 0.22)),
            Kind("Nonspecific white matter lesion", 0.90, (0.08, 0.12), (0.08, 0.12)),
            Kind("Encephalomalacia", 0.08, (0.14, 0.18), (0.28, 0.36)),
        ),
        "knee": (
            Kind("Joint Effusion", 0.95, (0.36, 0.46), (0.15, 0.20)),
            Kind("Meniscus Tear", 0.02, (0.24, 0.32), (0.15, 0.20)),
            Kind("Bone- Subchondral edema", 0.80, (0.16, 0.20), (0.28, 0.36)),
            Kind("Periarticular cysts", 0.92, (0.10, 0.14), (0.10, 0.14)),
            Kind("Cartilage - Partial Thickness loss/defect", 0.05, (0.14, 0.18), (0.30, 0.38)),
        ),
    }
)
# Grey scale -> exponent on brightness, standard deviation of the noise.
CONTRASTS: Final = MappingProxyType({"linear": (1.0, 0.02), "compressed": (0.6, 0.03)})
# Sequence in names -> the release's modality; volumes take turns.
SEQUENCES: Final = (("AXFLAIR", "FLAIR"), ("AXT1", "T1"), ("AXFLAIR", "FLAIR"), ("AXT1POST", "T1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MriConfig:
    """What to draw and how much to ask.

    Attributes:
        seed: Seed of everything.
        train: Training volumes per organ.
        val: Volumes per organ in the split that file names call `val` and the paper calls test.
        flair_px: Side of FLAIR slices in pixels.
        t1_px: Side of T1 slices in pixels; fastMRI's brain slices have several sizes.
        knee_px: Side of knee slices in pixels.
        brain_slices_min: Fewest slices of a brain volume.
        brain_slices_max: Most slices of a brain volume.
        knee_slices_min: Fewest slices of a knee volume.
        knee_slices_max: Most slices of a knee volume.
        normal_share: Share of volumes without a finding.
        findings: Most findings of a volume.
        depth: Most slices on which one finding shows.
        kinds: How many of an organ's `KINDS` occur.
        slices: Slices per volume with questions of their own.
        normal_slices: Share of them without a finding, in volumes that have one; more where slices with findings run out.
        absent_share: Share of the questions for a finding that ask for one that is not there.
        shuffle_options: The options of a choice stand in random order, else in the order of `KINDS`.
        style: `full` sentences, or the `short` answers that a tiny model can learn.
        contrast: Grey scale, a key of `CONTRASTS`.
        wording: Which set of questions, a key of `benchmarks.phantom_mri_wording.FORMS`.
        volume_boxes: Rows of volume questions list their boxes with frames, which the published generator leaves to the
            volume metadata.
        knee_fault: Knee findings are one frame early in the questions, as in the published release; the annotation
            tables stay true.
    """

    seed: int = 0
    train: int = 12
    val: int = 6
    flair_px: int = 256
    t1_px: int = 320
    knee_px: int = 320
    brain_slices_min: int = 14
    brain_slices_max: int = 16
    knee_slices_min: int = 28
    knee_slices_max: int = 36
    normal_share: float = 0.2
    findings: int = 3
    depth: int = 6
    kinds: int = 5
    slices: int = 3
    normal_slices: float = 0.2
    absent_share: float = 0.5
    shuffle_options: bool = True
    style: Literal["full", "short"] = "full"
    contrast: str = "linear"
    wording: str = "clinic"
    volume_boxes: bool = False
    knee_fault: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding: slice index from 0 -> box `x, y, width, height` in pixels of the slice as displayed."""

    label: str
    boxes: dict[int, XYWH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A drawn volume.

    Attributes:
        name: As fastMRI names it.
        organ: `brain` or `knee`.
        modality: `FLAIR`, `T1` or `knee`.
        pixels: Slices as displayed, float32[slices, rows, columns], not negative, in the small units of
            fastMRI's reconstructions.
        findings: In no particular order.
    """

    name: str
    organ: Organ
    modality: str
    pixels: Floats
    findings: tuple[Finding, ...]

    def on_slice(self, index: int) -> list[tuple[str, XYWH]]:
        """Label and box of what shows on a slice, from left to right."""
        found = [(finding.label, finding.boxes[index]) for finding in self.findings if index in finding.boxes]
        return sorted(found, key=lambda item: (item[1], item[0]))


def draw_volume(config: MriConfig, organ: Organ, number: int) -> Volume:
    """Draws volume `number`, from 0, of an organ; how many there are does not matter."""
    rng = random.Random(f"phantom-mri:{config.seed}:{organ}:{number}")
    noise = np.random.default_rng([config.seed, number, organ == "knee"])
    if organ == "brain":
        sequence, modality = SEQUENCES[number % len(SEQUENCES)]
        name = f"file_brain_{sequence}_200_{9_000_001 + number}"
        side = config.flair_px if modality == "FLAIR" else config.t1_px
        depth = rng.randint(config.brain_slices_min, config.brain_slices_max)
    else:
        name, modality, side = f"file{9_000_001 + number}", "knee", config.knee_px
        depth = rng.randint(config.knee_slices_min, config.knee_slices_max)
    pose = (rng.uniform(0.47, 0.53), rng.uniform(0.47, 0.53), rng.uniform(0.94, 1.0))
    draw = draw_brain if organ == "brain" else draw_knee
    slices = np.stack([draw(side, (index + 0.5) / depth, modality, pose) for index in range(depth)])
    findings = []
    for kind, spots in _place(rng, config, organ, depth, pose):
        boxes = {index: pixel_box(side, spot) for index, spot in spots.items()}
        for index, box in boxes.items():
            paint(slices[index], box, kind.brightness)
        findings.append(Finding(label=kind.label, boxes=boxes))
    exponent, sigma = CONTRASTS[config.contrast]
    # Magnitude images have no negative values; fastMRI's are of the order of 1e-4.
    exposed = np.abs(slices**exponent + noise.normal(0, sigma, slices.shape)) * rng.uniform(1e-4, 1e-3)
    return Volume(
        name=name, organ=organ, modality=modality, pixels=exposed.astype(np.float32), findings=tuple(findings)
    )


def _place(
    rng: random.Random, config: MriConfig, organ: Organ, depth: int, pose: Pose
) -> list[tuple[Kind, dict[int, Spot]]]:
    """Findings that do not overlap on any slice; what finds no room in twenty tries is left out."""
    placed: list[tuple[Kind, dict[int, Spot]]] = []
    if rng.random() < config.normal_share:
        return placed
    kinds = KINDS[organ][: config.kinds]
    for _ in range(rng.randint(1, config.findings)):
        kind, extent = rng.choice(kinds), rng.randint(1, min(config.depth, depth - 1))
        width, height = rng.uniform(*kind.width), rng.uniform(*kind.height)
        # fastMRI+ has no knee box on the first slice.
        first = rng.randint(0 if organ == "brain" else 1, depth - extent)
        for _ in range(20):
            x, y = (0.5 + rng.uniform(-0.26, 0.26) for _ in range(2))
            spots = {}
            for index in range(first, first + extent):
                scale = 1 - 0.3 * abs(index - first - (extent - 1) / 2) / extent
                drift = (rng.uniform(-0.01, 0.01), rng.uniform(-0.01, 0.01))
                spots[index] = (x + drift[0], y + drift[1], width * scale, height * scale)
            inside = all(_inside(spot, organ, (index + 0.5) / depth, pose) for index, spot in spots.items())
            if inside and not any(_overlap(spots, other) for _, other in placed):
                placed.append((kind, spots))
                break
    return placed


def _inside(spot: Spot, organ: Organ, height: float, pose: Pose) -> bool:
    """Whether all corners of the spot lie within the head or the leg."""
    cx, cy, w, h = spot
    rx, ry = radii(organ, height, pose)
    return all(
        ((cx + side * w / 2 - pose[0]) / rx) ** 2 + ((cy + end * h / 2 - pose[1]) / ry) ** 2 <= 0.9
        for side in (-1, 1)
        for end in (-1, 1)
    )


def _overlap(first: dict[int, Spot], second: dict[int, Spot]) -> bool:
    return any(
        all(
            abs(first[index][axis] - second[index][axis])
            < (first[index][axis + 2] + second[index][axis + 2]) / 2 + 0.04
            for axis in (0, 1)
        )
        for index in first.keys() & second.keys()
    )
