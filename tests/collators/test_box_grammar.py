"""The grammar of boxes: a number is allowed exactly if some box with it is read, and where a box has its place."""

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from benchmarks.canvas import MOSTLY, plan_layout
from benchmarks.schema import Answer, Ask, Box, Image
from collators.codecs.base import CodecError
from collators.codecs.box_grammar import BoxGrammar, box_grammar
from collators.codecs.canvas_boxes import box_to_numbers, reach
from collators.codecs.code_fields import Coded
from collators.codecs.loc_tokens import LocTokens, read_box
from collators.codecs.seg_tokens import SegTokens
from recipes.inputs import Canvas

VIEWS = ("ANT", "POST", "LAT")
PUBLISHED = Canvas(size=224, order=("ANT", "POST"))
MASKS = "".join(f"<seg{number:03d}>" for number in range(16))


def question(sizes: dict[str, tuple[int, int]], **fields) -> Ask:
    images = tuple(Image(path=view, width=width, height=height, view=view) for view, (width, height) in sizes.items())
    return Ask(**{"task": "grounded_vqa", "question": "Where?", **fields}, images=images)


PAIR = question({"ANT": (256, 1024), "POST": (256, 1024)})


@st.composite
def plans(draw) -> tuple[Canvas, Ask]:
    """A plan and a question that fits it; views from thinner than a bin to large, also of equal sizes."""
    shown = draw(st.lists(st.sampled_from(VIEWS), min_size=1, unique=True))
    sides = st.one_of(st.integers(1, 8), st.integers(9, 1500))
    same = draw(st.booleans())
    size = (draw(sides), draw(sides))
    order = draw(st.sampled_from([(), VIEWS, VIEWS]))
    plan = Canvas(
        size=224,
        arrange=draw(st.sampled_from(["side_by_side", "stacked"])),
        order=order,
        missing=draw(st.sampled_from(["leave_out", "black"])) if order else "leave_out",
        gap=draw(st.sampled_from([0, 0, 1, 30])),
        resize=draw(st.sampled_from(["squash", "pad"])),
    )
    return plan, question({view: size if same else (draw(sides), draw(sides)) for view in shown})


@st.composite
def numbers(draw, plan: Canvas, ask: Ask) -> tuple[int, int, int, int]:
    """Four numbers y1 x1 y2 x2, often near the edges of panels and of each other."""
    layout = plan_layout(plan, ask.images)
    across = [round(edge * 1023 / layout.width) for panel in layout.panels for edge in (panel.x, panel.x + panel.width)]
    down = [round(edge * 1023 / layout.height) for panel in layout.panels for edge in (panel.y, panel.y + panel.height)]
    near = st.integers(-2, 2)
    y1, x1 = (
        draw(st.one_of(st.integers(0, 1023), st.builds(int.__add__, st.sampled_from(edges), near)))
        for edges in (down, across)
    )
    y2, x2 = (
        draw(st.one_of(st.integers(0, 1023), st.builds(int.__add__, st.sampled_from([*edges, low]), near)))
        for edges, low in ((down, y1), (across, x1))
    )
    return tuple(min(max(number, 0), 1023) for number in (y1, x1, y2, x2))


def is_box(plan: Canvas, ask: Ask, numbers: tuple[int, ...]) -> bool:
    """Whether the codec reads four numbers as a box of an image."""
    y1, x1, y2, x2 = numbers
    return isinstance(read_box(Coded(grid=(x1, y1, x2, y2)), plan_layout(plan, ask.images)), Box)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_number_is_allowed_exactly_if_a_box_with_it_is_read(data):
    """By induction from the last number, against the codec for all 1,024 of them, to the first."""
    plan, ask = data.draw(plans())
    box = data.draw(numbers(plan, ask))
    grammar = LocTokens(plan).grammar(ask)
    read = [is_box(plan, ask, (*box[:3], number)) for number in range(1024)]
    assert grammar.allowed(box[:3]).tolist() == read
    length = data.draw(st.integers(0, 2))
    completed = [grammar.allowed((*box[:length], number)).any() for number in range(1024)]
    assert grammar.allowed(box[:length]).tolist() == completed


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_what_completes_a_box_best_is_found_for_every_number(data):
    """Every pair of numbers of an axis is tried: what the induction above sees for one number each time."""
    plan, ask = data.draw(plans())
    layout = plan_layout(plan, ask.images)
    (y1, *_), slack = data.draw(numbers(plan, ask)), reach(layout)
    across, down = (np.arange(1024) * side / 1023 for side in (layout.width, layout.height))
    best = layout.shares(0, across[:, None, None], across[:, None], slack[0]).max(axis=1)
    enough = best * layout.shares(1, down[y1], down[:, None], slack[1]).max(axis=0) > MOSTLY
    shown = [panel.image is not None for panel in layout.panels]
    assert box_grammar(layout).allowed((y1,)).tolist() == enough[:, shown].any(axis=1).tolist()


def test_these_laws_can_fail():
    """A grammar that forgets the slack of rounded edges, or the black panel, disagrees with the codec."""
    plan = Canvas(size=224, order=("ANT", "POST"), missing="black")
    ask = question({"POST": (255, 1024)})
    layout = plan_layout(plan, ask.images)
    bare = BoxGrammar(layout)
    bare._reach = (0.0, 0.0)
    blind = BoxGrammar(layout)
    blind._shown = np.ones_like(blind._shown)
    prefix = (0, 511, 1023)
    read = [is_box(plan, ask, (*prefix, number)) for number in range(1024)]
    assert True in read
    assert BoxGrammar(layout).allowed(prefix).tolist() == read
    assert bare.allowed(prefix).tolist() != read
    assert blind.allowed((0, 0, 1023)).any()
    assert not is_box(plan, ask, (0, 0, 1023, 400))


def test_a_box_on_the_border_of_a_black_panel_is_the_views():
    """One bin on the border of equal panels may have come from either; a black panel has no boxes."""
    box = "<loc0100><loc0511><loc0200><loc0512>"
    plan = Canvas(size=224, order=("ANT", "POST"), missing="black")
    for view in ("ANT", "POST"):
        read = LocTokens(plan).decode(box, question({view: (256, 1024)}))
        assert isinstance(read, Answer)
        assert len(read.boxes) == 1


@settings(deadline=None)
@given(st.data())
def test_every_box_that_is_written_is_allowed(data):
    plan, ask = data.draw(plans())
    layout = plan_layout(plan, ask.images)
    number = data.draw(st.integers(0, len(ask.images) - 1))
    image = ask.images[number]
    spans = [
        sorted((data.draw(st.floats(0, side)), data.draw(st.floats(0, side)))) for side in (image.width, image.height)
    ]
    assume(all(high > low for low, high in spans))
    (left, right), (top, bottom) = spans
    try:
        x1, y1, x2, y2 = box_to_numbers(Box(image=number, xyxy=(left, top, right, bottom)), layout)
    except CodecError:
        reject()  # an image of less than a bin has no boxes
    grammar = box_grammar(layout)
    text = (y1, x1, y2, x2)
    for place in range(4):
        assert grammar.allowed(text[:place])[text[place]]


def test_no_box_begins_where_no_image_is_as_wide_as_a_bin():
    grammar = LocTokens(Canvas(size=224)).grammar(question({"ANT": (1, 9), "POST": (5000, 9)}))
    assert grammar.allowed(()).any()
    thin = Canvas(size=224, order=("ANT", "POST"), missing="black", gap=9000)
    assert not LocTokens(thin).grammar(question({"POST": (1, 9)})).allowed(()).any()


def test_a_whole_box_has_no_next_number():
    with pytest.raises(ValueError, match="four numbers, 4 are given"):
        LocTokens(PUBLISHED).grammar(PAIR).allowed((1, 2, 3, 4))


def test_questions_with_one_layout_share_their_grammar():
    codec = LocTokens(PUBLISHED)
    assert codec.grammar(PAIR) is codec.grammar(PAIR.__class__(task="vqa", images=PAIR.images, question="Else?"))


# Where an object has its place.

BOX = "<loc0010><loc0020><loc0100><loc0200>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        (" ", True),
        ("abnormal ; ", True),
        ("abnormal;", True),
        ("odd words ;", True),
        (f"{BOX} left knee ; ", True),
        (f"abnormal ; {BOX} ;", True),
        ("abnormal", False),
        ("; ", False),
        ("a ; b ; ", False),
        (BOX, False),
        (f"{BOX} left", False),
        (f"{BOX} left knee ; It is hot", False),
        (f"{BOX} left knee ; It is hot; ", False),
        (f"{BOX} ; ; ", False),
        ("<loc0010>", False),
        ("abnormal ; <seg003>", False),
        ("\ud800 ; ", False),
    ],
)
@pytest.mark.parametrize("masks", [False, True])
def test_an_object_stands_at_the_start_or_behind_a_separator_and_nowhere_else(text, expected, masks):
    codec, whole = (SegTokens(PUBLISHED), BOX + MASKS) if masks else (LocTokens(PUBLISHED), BOX)
    text = text.replace(BOX, whole)
    assert codec.takes_object(text, PAIR) == expected
    assert isinstance(codec.decode(text + whole, PAIR), Answer) == expected
