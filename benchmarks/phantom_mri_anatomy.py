"""What `phantom-mri` draws a volume from: a head, a knee, and ellipses in both.

Brightness runs from 0 to 1 with the rim the brightest of all, so that scaling a slice by its maximum, as the published
preparation does, leaves the rest as it is. `height` runs from 0 to 1 through the volume.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Organ = Literal["brain", "knee"]
# Left, top, width and height in pixels.
XYWH = tuple[int, int, int, int]
# Centre x, centre y, width and height as shares of the image side.
Spot = tuple[float, float, float, float]
# Centre x, centre y and scale of the head or leg.
Pose = tuple[float, float, float]


def radii(organ: Organ, height: float, pose: Pose) -> tuple[float, float]:
    """Half axes of the outline inside its bright rim; `height` runs from 0 to 1 through the volume."""
    shrink = pose[2] * (1 - 0.5 * (height - 0.5) ** 2)
    return (0.38 * shrink, 0.40 * shrink) if organ == "brain" else (0.39 * shrink, 0.41 * shrink)


def pixel_box(side: int, spot: Spot) -> XYWH:
    """Pixels of a spot, at least two a side."""
    cx, cy, w, h = (value * side for value in spot)
    x, y = round(cx - w / 2), round(cy - h / 2)
    return x, y, max(round(cx + w / 2) - x, 2), max(round(cy + h / 2) - y, 2)


def paint(pixels: Floats, box: XYWH, value: float) -> None:
    """Paints the ellipse inscribed in a box."""
    x, y, w, h = box
    rows, columns = np.mgrid[y : y + h, x : x + w].astype(np.float32) + 0.5
    inside = ((columns - x - w / 2) * 2 / w) ** 2 + ((rows - y - h / 2) * 2 / h) ** 2 <= 1
    pixels[y : y + h, x : x + w][inside] = value


def draw_brain(side: int, height: float, modality: str, pose: Pose) -> Floats:
    """A head from above, float32[side, side]: bright rim, dark skull, brain, ventricles around the middle of the volume."""
    tissue, fluid = (0.40, 0.12) if modality == "FLAIR" else (0.48, 0.18)
    pixels = np.zeros((side, side), np.float32)
    rx, ry = radii("brain", height, pose)
    for grow, value in ((1.16, 1.0), (1.05, 0.05), (1.0, tissue)):
        paint(pixels, pixel_box(side, (pose[0], pose[1], 2 * rx * grow, 2 * ry * grow)), value)
    if 0.3 < height < 0.7:
        for turn in (-1, 1):
            paint(pixels, pixel_box(side, (pose[0] + turn * 0.06, pose[1], 0.05, 0.16)), fluid)
    return pixels


def draw_knee(side: int, height: float, modality: str, pose: Pose) -> Floats:  # noqa: ARG001 - as draw_brain
    """A knee from the side, float32[side, side]: bright rim, muscle, femur above and tibia below the joint space."""
    pixels = np.zeros((side, side), np.float32)
    rx, ry = radii("knee", height, pose)
    for grow, value in ((1.12, 1.0), (1.0, 0.25)):
        paint(pixels, pixel_box(side, (pose[0], pose[1], 2 * rx * grow, 2 * ry * grow)), value)
    for turn in (-1, 1):
        paint(pixels, pixel_box(side, (pose[0], pose[1] + turn * 0.22, 1.2 * rx, 0.36)), 0.5)
    return pixels
