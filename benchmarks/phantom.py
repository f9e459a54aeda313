"""The synthetic benchmark `phantom`: paired whole-body bone scans drawn from a seed.

A patient is a body outline with nine skeletal regions, seen from the front and, mirrored, from behind.
Size and position on the table vary, so that boxes cannot be known without looking. Some regions hold
a hot spot: bright ones are abnormal, faint ones (named `Normal` in the official annotation) are not.
A spot is seen in one view or in both. `benchmarks.phantom_release` writes patients as an official
ScintiGround release.

Everything is a function of `(seed, patient number)`; nothing depends on order or on the machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

View = Literal["ANT", "POST"]
VIEWS: tuple[View, View] = ("ANT", "POST")
Greys = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
XYXY = tuple[int, int, int, int]

# Region -> (centre x, centre y, width, height) in unit body coordinates of the front view, where the
# patient's right is at the image's left. The two layouts are two "populations". In 64 x 128 pixels each
# paired region keeps to a 32 x 32 cell of its own, one vision token of a patch-16, merge-2 model: a
# region spread over several tokens takes a tiny model many times longer to learn.
LAYOUTS: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "standard": {
        "head": (0.50, 0.11, 0.34, 0.14),
        "right chest": (0.25, 0.37, 0.32, 0.16),
        "left chest": (0.75, 0.37, 0.32, 0.16),
        "vertebra": (0.50, 0.37, 0.12, 0.24),
        "pelvis": (0.50, 0.51, 0.50, 0.08),
        "right knee": (0.26, 0.63, 0.28, 0.15),
        "left knee": (0.74, 0.63, 0.28, 0.15),
        "right ankle": (0.26, 0.88, 0.26, 0.14),
        "left ankle": (0.74, 0.88, 0.26, 0.14),
    },
    "broad": {
        "head": (0.50, 0.13, 0.40, 0.16),
        "right chest": (0.23, 0.39, 0.36, 0.14),
        "left chest": (0.77, 0.39, 0.36, 0.14),
        "vertebra": (0.50, 0.38, 0.14, 0.26),
        "pelvis": (0.50, 0.52, 0.58, 0.08),
        "right knee": (0.23, 0.64, 0.34, 0.12),
        "left knee": (0.77, 0.64, 0.34, 0.12),
        "right ankle": (0.22, 0.87, 0.34, 0.12),
        "left ankle": (0.78, 0.87, 0.34, 0.12),
    },
}
REGIONS = tuple(LAYOUTS["standard"])
PAIRED = tuple(region for region in REGIONS if region.startswith(("right", "left")))
CONTRASTS = ("linear", "compressed")
SOFT_TISSUE, BONE, FAINT, BRIGHT = 0.10, 0.26, 0.55, 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class PhantomConfig:
    """What to draw and how much to ask.

    Attributes:
        seed: Seed of everything.
        train: Number of training patients.
        val: Number of validation patients.
        test: Number of test patients.
        width: Image width in pixels (256 in the release).
        height: Image height in pixels (1024 in the release).
        vqa: Yes/no questions per patient, about a region.
        grounding: Box questions per patient.
        grounded_vqa: Questions for class and box per patient.
        abnormal_share: Share of abnormal regions among the closed questions.
        lesion_share: Share of the box questions that ask for a hot spot instead of a region.
        both_share: Share of the region questions that ask about both views at once.
        paired_only: Hot spots in, and questions about, chest, knee and ankle only.
        layout: Proportions of the bodies, a key of `LAYOUTS`.
        contrast: `linear` or `compressed` (square root, dimmer, more noise).
        wording: Which set of question and answer forms, a key of `benchmarks.phantom_wording.FORMS`.
    """

    seed: int = 0
    train: int = 200
    val: int = 25
    test: int = 25
    width: int = 256
    height: int = 1024
    vqa: int = 3
    grounding: int = 3
    grounded_vqa: int = 3
    abnormal_share: float = 0.1
    lesion_share: float = 0.2
    both_share: float = 1 / 3
    paired_only: bool = False
    layout: str = "standard"
    contrast: str = "linear"
    wording: str = "clinic"

    @property
    def regions(self) -> tuple[str, ...]:
        """Regions that may hold a hot spot and are asked about."""
        return PAIRED if self.paired_only else REGIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Hotspot:
    """A spot: `box` per view in native pixels, only for the views that show it."""

    region: str
    abnormal: bool
    boxes: dict[View, XYXY]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """A drawn patient: grey images `uint8[H, W]` per view, region boxes per view, hot spots."""

    number: int
    images: dict[View, Greys]
    regions: dict[str, dict[View, XYXY]]
    hotspots: tuple[Hotspot, ...]

    def abnormal(self, region: str, views: tuple[View, ...]) -> bool:
        """Whether a bright spot lies in the region in any of the views."""
        spots = [spot for spot in self.hotspots if spot.region == region and spot.abnormal]
        return any(view in spot.boxes for spot in spots for view in views)


@dataclass(slots=True)
class _Canvas:
    """One view being drawn; coordinates are unit body coordinates of that view."""

    width: int
    height: int
    scale: tuple[float, float]
    offset: tuple[float, float]
    pixels: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.pixels = np.zeros((self.height, self.width), np.float32)

    def box(self, cx: float, cy: float, w: float, h: float) -> XYXY:
        """Native pixel box of a unit box, clipped to the image, at least two pixels a side."""
        x1, x2 = (self.width * (0.5 + (x - 0.5) * self.scale[0] + self.offset[0]) for x in (cx - w / 2, cx + w / 2))
        y1, y2 = (self.height * (0.5 + (y - 0.5) * self.scale[1] + self.offset[1]) for y in (cy - h / 2, cy + h / 2))
        left, top = min(max(round(x1), 0), self.width - 2), min(max(round(y1), 0), self.height - 2)
        return left, top, min(max(round(x2), left + 2), self.width), min(max(round(y2), top + 2), self.height)

    def ellipse(self, box: XYXY, value: float) -> None:
        """Paints the ellipse inscribed in a pixel box, keeping what is brighter already."""
        x1, y1, x2, y2 = box
        rows, columns = np.mgrid[y1:y2, x1:x2].astype(np.float32) + 0.5
        inside = ((columns - (x1 + x2) / 2) * 2 / (x2 - x1)) ** 2 + ((rows - (y1 + y2) / 2) * 2 / (y2 - y1)) ** 2 <= 1
        patch = self.pixels[y1:y2, x1:x2]
        patch[inside] = np.maximum(patch[inside], value)


def draw_patient(config: PhantomConfig, number: int) -> Patient:
    """Draws patient `number`; the result depends on the config's seed, size, layout and contrast only."""
    rng = random.Random(f"phantom:{config.seed}:{number}")
    noise = np.random.default_rng([config.seed, number])
    scale = (rng.uniform(0.84, 1.0), rng.uniform(0.90, 1.0))
    shift, drop = rng.uniform(-0.06, 0.06), rng.uniform(-0.035, 0.035)
    layout = LAYOUTS[config.layout]
    spots = _draw_spots(rng, {region: layout[region] for region in config.regions})
    images: dict[View, Greys] = {}
    regions: dict[str, dict[View, XYXY]] = {region: {} for region in layout}
    boxes: list[dict[View, XYXY]] = [{} for _ in spots]
    for view in VIEWS:
        side = 1 if view == "ANT" else -1
        canvas = _Canvas(config.width, config.height, scale, (side * shift, drop))
        for cx, cy, w, h in (
            (0.5, 0.32, 0.78, 0.40),
            (0.5, 0.56, 0.62, 0.20),
            (0.34, 0.78, 0.22, 0.4),
            (0.66, 0.78, 0.22, 0.4),
        ):
            canvas.ellipse(canvas.box(cx, cy, w, h), SOFT_TISSUE)
        for region, (cx, cy, w, h) in layout.items():
            regions[region][view] = canvas.box(_seen_from(view, cx), cy, w, h)
            canvas.ellipse(regions[region][view], BONE)
        for spot, found in zip(spots, boxes, strict=True):
            if view in spot.views:
                found[view] = canvas.box(_seen_from(view, spot.cx), spot.cy, spot.w, spot.h)
                canvas.ellipse(found[view], BRIGHT if spot.abnormal else FAINT)
        images[view] = _expose(canvas.pixels, config.contrast, noise)
    hotspots = tuple(
        Hotspot(region=spot.region, abnormal=spot.abnormal, boxes=found)
        for spot, found in zip(spots, boxes, strict=True)
    )
    return Patient(number=number, images=images, regions=regions, hotspots=hotspots)


@dataclass(frozen=True, slots=True)
class _Spot:
    region: str
    abnormal: bool
    cx: float
    cy: float
    w: float
    h: float
    views: tuple[View, ...]


def _draw_spots(rng: random.Random, layout: dict[str, tuple[float, float, float, float]]) -> list[_Spot]:
    """Up to three abnormal and up to two faint spots, each well inside a region of its own."""
    abnormal = rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 3))
    hosts = rng.sample(sorted(layout), abnormal + rng.choice((0, 1, 2)))
    spots = []
    for order, region in enumerate(hosts):
        cx, cy, w, h = layout[region]
        width, height = w * rng.uniform(0.45, 0.7), h * rng.uniform(0.4, 0.65)
        spots.append(
            _Spot(
                region=region,
                abnormal=order < abnormal,
                cx=cx + rng.uniform(-0.5, 0.5) * (w - width) * 0.9,
                cy=cy + rng.uniform(-0.5, 0.5) * (h - height) * 0.9,
                w=width,
                h=height,
                views=rng.choice((("ANT", "POST"), ("ANT", "POST"), ("ANT",), ("POST",))),
            )
        )
    return spots


def _seen_from(view: View, x: float) -> float:
    """The posterior view is the mirror image of the anterior one."""
    return x if view == "ANT" else 1 - x


def _expose(pixels: Floats, contrast: str, noise: np.random.Generator) -> Greys:
    """Grey scale and noise of one detector."""
    if contrast == "linear":
        exposed = pixels + noise.normal(0, 0.02, pixels.shape)
    else:
        exposed = 0.6 * np.sqrt(pixels) + noise.normal(0, 0.04, pixels.shape)
    return (np.clip(exposed, 0, 1) * 255).round().astype(np.uint8)
