"""The canvas: where views stand, boxes and masks there and back, what has no image."""

import numpy as np
import PIL.Image
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.canvas import Layout, compose, plan_layout
from benchmarks.errors import DataError
from benchmarks.schema import Image
from recipes.inputs import Canvas

PUBLISHED = Canvas(size=224, order=("ANT", "POST"))
VIEWS = ("ANT", "POST", "LAT")


def image(view: str | None, width: int = 256, height: int = 1024) -> Image:
    return Image(path=f"{view}.png", width=width, height=height, view=view)


@st.composite
def plans(draw) -> tuple[Canvas, list[Image]]:
    """A plan and images that fit it: one to three views of any size."""
    shown = draw(st.lists(st.sampled_from(VIEWS), min_size=1, unique=True))
    images = [image(view, draw(st.integers(1, 1500)), draw(st.integers(1, 1500))) for view in shown]
    order = draw(st.sampled_from([(), VIEWS]))
    plan = Canvas(
        size=draw(st.integers(1, 900)),
        arrange=draw(st.sampled_from(["side_by_side", "stacked"])),
        order=order,
        missing=draw(st.sampled_from(["leave_out", "black"])) if order else "leave_out",
        gap=draw(st.integers(0, 40)),
        resize=draw(st.sampled_from(["squash", "pad"])),
    )
    return plan, images


@st.composite
def boxes(draw) -> tuple[Layout, int, tuple[float, float, float, float]]:
    """A layout, an image of it, and a box inside that image."""
    plan, images = draw(plans())
    number = draw(st.integers(0, len(images) - 1))
    spans = [sorted((draw(st.floats(0, side)), draw(st.floats(0, side)))) for side in _size(images[number])]
    assume(all(high - low > 1e-3 for low, high in spans))
    (x1, x2), (y1, y2) = spans
    return plan_layout(plan, images), number, (x1, y1, x2, y2)


def _size(shown: Image) -> tuple[int, int]:
    return shown.width, shown.height


@settings(deadline=None)
@given(boxes())
def test_a_box_goes_to_the_square_and_back(case):
    layout, number, box = case
    square = layout.to_canvas(number, box)
    assert 0 <= square[0] < square[2] <= layout.size * (1 + 1e-12)
    assert 0 <= square[1] < square[3] <= layout.size * (1 + 1e-12)
    found = layout.to_native(square)
    assert isinstance(found, tuple)
    assert found[0] == number
    assert found[1] == pytest.approx(box, abs=1e-6)


@settings(deadline=None)
@given(plans())
def test_panels_do_not_overlap_and_lie_on_the_canvas(case):
    plan, images = case
    layout = plan_layout(plan, images)
    covered = np.zeros((layout.height, layout.width), dtype=int)
    for panel in layout.panels:
        assert panel.x + panel.width <= layout.width
        assert panel.y + panel.height <= layout.height
        covered[panel.y : panel.y + panel.height, panel.x : panel.x + panel.width] += 1
    assert covered.max() == 1
    assert sorted(panel.image for panel in layout.panels if panel.image is not None) == list(range(len(images)))
    assert (layout.width == layout.height) or plan.resize == "squash"
    assert layout.size == plan.size


@settings(deadline=None)
@given(plans(), st.data())
def test_a_mask_comes_back_but_for_its_rim(case, data):
    """Each native pixel gets the value of one that is at most half a pixel of both grids away, and a rectangle's
    inside and outside therefore stay."""
    plan, images = case
    layout = plan_layout(plan, images)
    number = data.draw(st.integers(0, len(images) - 1))
    width, height = _size(images[number])
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    mask = np.zeros((height, width), dtype=np.bool_)
    mask[y:, x:] = True
    back = layout.mask_to_native(number, layout.mask_to_canvas(number, mask))
    reach = [0.5 / scale + 0.5 for scale in layout.scale]
    panel = layout.panel(number)
    columns, rows = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    inside = (columns > x + reach[0]) & (rows > y + reach[1])
    # Where the canvas goes on beyond the panel, the nearest pixel may lie there.
    inside &= (columns < width - reach[0]) | (panel.x + width == layout.width)
    inside &= (rows < height - reach[1]) | (panel.y + height == layout.height)
    outside = (columns < x - reach[0]) | (rows < y - reach[1])
    assert back[inside].all()
    assert not back[outside].any()


def near(mask: np.ndarray, reach: tuple[float, float]) -> np.ndarray:
    """Whether the mask holds a pixel whose centre is at most `reach` (x, y) pixels away: bool[h, w]."""
    down, across = (
        (np.abs(np.subtract.outer(np.arange(side), np.arange(side))) <= far + 1e-9).astype(int)
        for side, far in zip(mask.shape, reversed(reach), strict=True)
    )
    return down @ mask @ across > 0


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=3),
    st.sampled_from(["squash", "pad"]),
    st.sampled_from(["side_by_side", "stacked"]),
    st.integers(1, 90),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_any_mask_comes_back_within_half_a_pixel_of_both_grids(sizes, resize, arrange, size, seed, data):
    """Arbitrary pixels, either way: native to square and back, and square to native and back."""
    images = [Image(path="a.png", width=w, height=h) for w, h in sizes]
    layout = plan_layout(Canvas(size=size, resize=resize, arrange=arrange, gap=data.draw(st.integers(0, 5))), images)
    number = data.draw(st.integers(0, len(images) - 1))
    panel = layout.panel(number)
    part = np.s_[panel.y : panel.y + panel.height, panel.x : panel.x + panel.width]
    rng = np.random.default_rng(seed)

    whole = np.zeros((layout.height, layout.width), dtype=np.bool_)
    whole[part] = rng.random((panel.height, panel.width)) > 0.5
    reach = layout.mask_rim()
    back = layout.mask_to_native(number, layout.mask_to_canvas(number, whole[part]))
    assert (back <= near(whole, reach)[part]).all()
    assert (~back <= near(~whole, reach)[part]).all()

    square = rng.random((size, size)) > 0.5
    reach = (0.5 * layout.scale[0] + 0.5, 0.5 * layout.scale[1] + 0.5)
    again = layout.mask_to_canvas(number, layout.mask_to_native(number, square))
    inside = layout.mask_to_canvas(number, np.ones((panel.height, panel.width), dtype=np.bool_))
    assert not again[~inside].any()
    assert (again <= near(square, reach))[inside].all()
    assert (~again <= near(~square, reach))[inside].all()


def test_a_square_that_is_a_multiple_of_the_canvas_keeps_masks_exactly():
    layout = plan_layout(Canvas(size=1024, resize="pad"), [image("ANT", 100, 256), image("POST", 90, 256)])
    mask = np.random.default_rng(0).random((256, 90)) > 0.5
    assert (layout.mask_to_native(1, layout.mask_to_canvas(1, mask)) == mask).all()
    assert not layout.mask_to_native(0, layout.mask_to_canvas(1, mask)).any()


def test_the_published_canvas():
    """Source: scintiground.md, "Canvas": widths add up, the greatest height, ANT left whatever comes first."""
    pair = plan_layout(PUBLISHED, [image("POST"), image("ANT")])
    assert (pair.width, pair.height) == (512, 1024)
    assert [(panel.view, panel.image, panel.x, panel.y) for panel in pair.panels] == [
        ("ANT", 1, 0, 0),
        ("POST", 0, 256, 0),
    ]
    alone = plan_layout(PUBLISHED, [image("POST")])
    assert (alone.width, alone.height) == (256, 1024)


def test_a_missing_view_is_a_black_panel_that_is_recorded():
    plan = PUBLISHED.model_copy(update={"missing": "black"})
    layout = plan_layout(plan, [image("POST")])
    assert [(panel.view, panel.image) for panel in layout.panels] == [("ANT", None), ("POST", 0)]
    picture = compose([PIL.Image.new("RGB", (256, 1024), (200, 100, 50))], layout)
    assert picture.size == (224, 224)
    assert picture.getpixel((50, 100)) == (0, 0, 0)
    assert picture.getpixel((170, 100)) == (200, 100, 50)
    assert layout.to_native((10, 10, 50, 50)) == "missing_view"


def test_each_view_is_where_the_layout_says():
    colours = {"ANT": (250, 0, 0), "POST": (0, 250, 0), "LAT": (0, 0, 250)}
    shown = [image("ANT", 40, 80), image("LAT", 90, 30), image("POST", 50, 70)]
    layout = plan_layout(Canvas(size=448, order=VIEWS, arrange="stacked", gap=7, resize="pad"), shown)
    picture = compose([PIL.Image.new("RGB", _size(each), colours[each.view or ""]) for each in shown], layout)
    for number, each in enumerate(shown):
        x1, y1, x2, y2 = layout.to_canvas(number, (0, 0, each.width, each.height))
        assert picture.getpixel((int((x1 + x2) / 2), int((y1 + y2) / 2))) == colours[each.view or ""]
    assert picture.getpixel((440, 440)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((200, 10, 300, 50), "straddles_panels"),
        ((300, 10, 420, 50), (1, (44, 10, 164, 50))),
        ((0, 900, 100, 1000), "outside_panels"),
        # 95 of 100 columns are on the left panel: clipped to it.
        ((161, 10, 261, 50), (0, (161, 10, 256, 50))),
    ],
)
def test_a_box_belongs_to_the_panel_that_holds_nearly_all_of_it(box, expected):
    layout = plan_layout(
        Canvas(size=512, order=("ANT", "POST"), resize="pad"), [image("ANT", 256, 512), image("POST", 256, 512)]
    )
    assert (layout.width, layout.height) == (512, 512)
    taller = plan_layout(Canvas(size=1024, resize="pad"), [image("ANT", 256, 800), image("POST", 256, 800)])
    found = taller.locate(box) if box[3] > 512 else layout.locate(box)
    assert found == expected


@pytest.mark.parametrize(
    ("views", "said"), [(["ANT", "ANT"], "as another one has"), ([None], "has the view None"), (["LAT"], "'LAT'")]
)
def test_images_that_do_not_fit_the_order_are_refused(views, said):
    with pytest.raises(DataError, match=said) as raised:
        plan_layout(PUBLISHED, [image(view) for view in views])
    assert "canvas.order" in raised.value.fix


def test_no_image_and_pictures_of_another_size_are_refused():
    with pytest.raises(DataError, match="no canvas"):
        plan_layout(PUBLISHED, [])
    with pytest.raises(ValueError, match="256x1024"):
        compose([PIL.Image.new("RGB", (9, 9))], plan_layout(PUBLISHED, [image("ANT")]))


@pytest.mark.parametrize("fields", [{"order": ("ANT", "ANT")}, {"missing": "black"}, {"size": 0}, {"gap": -1}])
def test_contradictory_plans_are_refused(fields):
    with pytest.raises(ValidationError):
        Canvas(**({"size": 224} | fields))


@pytest.mark.parametrize(
    ("size", "resize", "numbers", "rim"),
    [
        (224, "squash", (0.25, 0.5), (1.64, 2.79)),
        (224, "pad", (0.5, 0.5), (2.79, 2.79)),
        (448, "squash", (0.25, 0.5), (1.07, 1.64)),
        (448, "pad", (0.5, 0.5), (1.64, 1.64)),
    ],
)
def test_what_a_pair_of_scans_loses_in_native_pixels(size, resize, numbers, rim):
    """The numbers that the README prints; the size of the square does not matter to location numbers."""
    layout = plan_layout(Canvas(size=size, resize=resize), [image("ANT"), image("POST")])
    assert layout.half_bin() == pytest.approx(numbers, abs=1e-3)
    assert layout.mask_rim() == pytest.approx(rim, abs=6e-3)
