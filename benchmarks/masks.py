"""Masks as pixels: run lengths there and back, and a coarse mask put into its box.

Run lengths are those of `benchmarks.schema.RunLengths`: row by row, background first, so that the first run may be
empty and no other is. COCO's run lengths go column by column and are something else.

A mask that a model gives on a grid of its own (64 x 64 for PaliGemma) is drawn into the pixels of its image by one
rule: **a pixel belongs to the mask if its centre lies in the box and the grid, stretched over the box, has a value
above 0 there.** Between the centres of its cells the grid is interpolated bilinearly; where a pixel is larger than a
cell, the kernel is as much wider, so that no cell is left out; beyond the outermost centres the kernel is cut off
and its weights still sum to 1. For boxes with whole-numbered corners this is Pillow's bilinear resize of the grid to
the size of the box, as published (big_vision, `evaluators/proj/paligemma/transfers/segmentation.py`), where other
corners are cut to whole numbers first. The same box on the square that the model sees, in the canvas or in native
pixels is the same place, so the grid is drawn into native pixels at once and resampled only once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from benchmarks.canvas import BoolMask
from benchmarks.errors import DataError
from benchmarks.schema import XYXY, RunLengths


def to_run_lengths(mask: BoolMask) -> RunLengths:
    """A mask bool[h, w] as run lengths."""
    height, width = mask.shape
    flat = mask.ravel()
    edges = np.flatnonzero(np.diff(flat, prepend=False))
    bounds = np.concatenate([[0], edges, [flat.size]])
    # Without a pixel there is no run either.
    counts = np.diff(bounds).tolist() if flat.size else []
    return RunLengths(size=(height, width), counts=counts)


def from_run_lengths(runs: RunLengths) -> BoolMask:
    """Run lengths as a mask bool[h, w].

    Raises:
        DataError: A size or run is negative, or the runs do not sum to height times width.
    """
    height, width = runs.size
    total = sum(runs.counts)
    if min(height, width, *runs.counts) < 0 or total != height * width:
        raise DataError(
            f"run lengths of {total} pixels for a mask of {height} rows and {width} columns",
            fix="give runs row by row, background first, none negative; COCO's go column by column",
        )
    values = np.arange(len(runs.counts)) % 2 == 1
    return np.repeat(values, runs.counts).reshape(height, width)


def draw_grid(grid: NDArray[np.floating], xyxy: XYXY, size: tuple[int, int]) -> BoolMask:
    """Draws a coarse mask into its box, see the module.

    Args:
        grid: float[rows, columns], above 0 inside the mask.
        xyxy: The box over which the grid is stretched, in pixels; it may leave the image.
        size: Height and width of the image in pixels.

    Returns:
        bool[h, w]; nothing where the box holds no pixel's centre.
    """
    x1, y1, x2, y2 = xyxy
    (top, rows), (left, columns) = (
        _weights((y1, y2), size[0], grid.shape[0]),
        _weights((x1, x2), size[1], grid.shape[1]),
    )
    mask = np.zeros(size, dtype=np.bool_)
    mask[top : top + len(rows), left : left + len(columns)] = rows @ grid.astype(np.float64) @ columns.T > 0
    return mask


def _weights(span: tuple[float, float], side: int, cells: int) -> tuple[int, NDArray[np.float64]]:
    """The part that each cell has in each pixel of a side whose centre lies in `low <= x < high`.

    Returns:
        Number of the first such pixel, and float[pixels, cells], whose rows sum to 1.
    """
    low, high = span
    first, end = (min(max(math.ceil(edge - 0.5), 0), side) for edge in span)
    reach = max(cells / (high - low), 1.0)
    centres = (np.arange(first, end) + 0.5 - low) * (cells / (high - low))
    near = np.maximum(1 - np.abs(np.arange(cells) + 0.5 - centres[:, None]) / reach, 0.0)
    return first, near / near.sum(axis=1, keepdims=True)
