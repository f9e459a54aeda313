"""Masks: run lengths there and back, and a coarse grid drawn into its box."""

import msgspec
import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.canvas import plan_layout
from benchmarks.errors import DataError
from benchmarks.masks import draw_grid, from_run_lengths, to_run_lengths
from benchmarks.schema import Image, Mask, RunLengths
from recipes.inputs import Canvas

SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.sampled_from([0.0, 0.1, 0.5, 1.0]), SEEDS)
def test_a_mask_comes_back_from_its_run_lengths(height, width, share, seed):
    mask = np.random.default_rng(seed).random((height, width)) < share
    runs = to_run_lengths(mask)
    assert runs.size == (height, width)
    assert all(count > 0 for count in runs.counts[1:])
    assert (from_run_lengths(runs) == mask).all()
    stored = msgspec.json.decode(msgspec.json.encode(Mask(image=0, rle=runs)), type=Mask)
    assert stored.rle == runs


def test_runs_go_row_by_row_and_begin_with_background():
    mask = np.array([[True, True, False], [False, True, False]])
    assert to_run_lengths(mask).counts == [0, 2, 2, 1, 1]
    assert to_run_lengths(~mask).counts == [2, 2, 1, 1]


@pytest.mark.parametrize("counts", [[5], [7], [2, -1, 5], []])
def test_run_lengths_that_do_not_fill_the_mask_are_refused(counts):
    with pytest.raises(DataError, match="for a mask of 2 rows and 3 columns") as raised:
        from_run_lengths(RunLengths(size=(2, 3), counts=counts))
    assert "row by row" in raised.value.fix


@settings(deadline=None)
@given(st.data(), SEEDS)
def test_boxes_with_whole_corners_are_drawn_as_pillow_resizes(data, seed):
    """Enlarged and reduced; values so near the border that rounding decides are left out."""
    x1, y1 = data.draw(st.integers(0, 30)), data.draw(st.integers(0, 30))
    width, height = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 150))
    # Not centred on 0: the mean over a box of a few pixels would lie on the border by chance.
    grid = np.random.default_rng(seed).uniform(-0.7, 1.3, (64, 64)).astype(np.float32)
    mask = draw_grid(grid, (x1, y1, x1 + width, y1 + height), (200, 190))
    resized = np.asarray(PIL.Image.fromarray(grid).resize((width, height), PIL.Image.Resampling.BILINEAR))
    clear = np.abs(resized) > 1e-5
    assert clear.mean() > 0.9
    part = mask[y1 : y1 + height, x1 : x1 + width]
    assert (part == (resized > 0))[clear].all()
    assert mask.sum() == part.sum()


@st.composite
def steps(draw):
    """A grid that changes from outside to inside between two columns or two rows, and its box in an image."""
    width, height = draw(st.integers(1, 300)), draw(st.integers(1, 300))
    x1, x2 = sorted((draw(st.floats(0, width)), draw(st.floats(0, width))))
    y1, y2 = sorted((draw(st.floats(0, height)), draw(st.floats(0, height))))
    cut, across = draw(st.integers(16, 48)), draw(st.booleans())
    grid = np.where(np.arange(64) < cut, -1.0, 1.0) * np.ones((64, 1))
    box = (x1, y1, x2 + 0.01, y2 + 0.01)
    edge = (x1 + (box[2] - x1) * cut / 64, y1) if across else (x1, y1 + (box[3] - y1) * cut / 64)
    return (width, height), box, grid if across else grid.T, edge


def surely(size, box, edge, reach):
    """The pixels that are in a step's mask, and those that are not, whatever happens within `reach` of its border."""
    columns, rows = np.meshgrid(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5)
    x, y = reach
    inside = (columns > edge[0] + x) & (columns < box[2] - x) & (rows > edge[1] + y) & (rows < box[3] - y)
    outside = (columns < edge[0] - x) | (columns > box[2] + x) | (rows < edge[1] - y) | (rows > box[3] + y)
    return inside, outside


@settings(deadline=None)
@given(steps())
def test_the_border_is_where_the_box_says_to_half_a_pixel(case):
    size, box, grid, edge = case
    mask = draw_grid(grid, box, (size[1], size[0]))
    inside, outside = surely(size, box, edge, (0.5, 0.5))
    assert mask[inside].all()
    assert not mask[outside].any()


@settings(deadline=None)
@given(steps(), st.integers(1, 600), st.sampled_from(["squash", "pad"]), st.integers(1, 200), st.booleans())
def test_native_pixels_and_the_square_show_the_same_mask(case, side, resize, other, first):
    """Drawn on the square and read back, the border moves by one pixel of the square and no more."""
    size, box, grid, edge = case
    mine = Image(path="a.png", width=size[0], height=size[1])
    images = [mine, Image(path="b.png", width=other, height=other)]
    number = 0 if first else 1
    layout = plan_layout(Canvas(size=side, resize=resize), images if first else images[::-1])
    square = draw_grid(grid, layout.to_canvas(number, box), (side, side))
    back = layout.mask_to_native(number, square)
    inside, outside = surely(size, box, edge, (1 / layout.scale[0] + 1e-9, 1 / layout.scale[1] + 1e-9))
    assert back[inside].all()
    assert not back[outside].any()


def test_what_lies_outside_the_image_is_lost_and_nothing_is_squeezed():
    grid = np.where(np.arange(64) < 32, 1.0, -1.0) * np.ones((64, 1))
    mask = draw_grid(grid, (-10.0, 2.0, 30.0, 8.0), (6, 20))
    assert mask[2:, :10].all()
    assert not mask[:2].any()
    assert not mask[:, 10:].any()
    assert not draw_grid(np.ones((64, 64)), (3.6, 0.0, 4.4, 6.0), (6, 20)).any()
    assert not draw_grid(np.ones((64, 64)), (25.0, 0.0, 40.0, 6.0), (6, 20)).any()
