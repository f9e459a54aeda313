"""Volumes in the report: every frame of a shown case is in the page, and every box on its frame."""

import functools
import json

import msgspec
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schema import Answer, Image
from eval import report_gallery
from eval.evaluate import evaluate
from eval.report import render_report
from eval.report_format import visible
from eval.report_gallery import build_gallery
from eval.report_pictures import SLICE_SIDE, Picture, PictureStore, data_uri
from eval.report_views import Outline, View, is_volume, title_of
from eval.report_volume import boxes_in_words, build_volume
from eval.run import load_runs
from tests.eval.cases import answer_on, draw_slices, opened, record, shade, volume, write_data, write_run
from tests.eval.pages import Page, check_safe

HOSTILE = 'x" onmouseover="alert(1) </script><img src=x onerror=alert(1)> \u202e\x01 {{ 7 }} &quot;'


@pytest.fixture
def records():
    return [volume("a", 16, frames_with_boxes=(7, 8)), volume("b", 5), volume("c", 2, frames_with_boxes=(1, 2, 2))]


@pytest.fixture
def runs(tmp_path, records):
    """Two systems: one finds some of the boxes, one looks elsewhere in `b` only."""
    data = write_data(tmp_path / "data", records, benchmark="generic")
    draw_slices(data, records)
    found = [answer_on(records[0], (8, 8, 12)), answer_on(records[1], ()), answer_on(records[2], (1,))]
    lost = [answer_on(records[0], ()), answer_on(records[1], (2, 5)), answer_on(records[2], ())]
    folders = [write_run(tmp_path / name, data, rows, codec="plain") for name, rows in (("x", found), ("y", lost))]
    return load_runs(folders)


def gallery_and_page(runs):
    result = evaluate(runs, profiles=["corrected"], resamples=100)
    return build_gallery(result.systems, runs), Page(render_report(result, runs))


def boxes_in(page):
    """(system, record, frame from 1, kind, x, y, width, height) of every box drawn, in page order."""
    found, system, case, place, kind = [], "", "", 0, ""
    for tag, attrs in page.tags:
        if tag == "article":
            system = attrs["data-system"]
        elif "data-case" in attrs:
            case = attrs["data-case"]
        elif "data-place" in attrs:
            place = int(attrs["data-place"])
        elif tag == "g":
            kind = attrs.get("class")
        elif tag == "rect" and attrs.get("class") == "edge" and system:
            corner = [float(attrs[name]) for name in ("x", "y", "width", "height")]
            found.append((system, case, place + 1, kind, *corner))
    return found


def volumes_in(page):
    return [attrs for attrs in page.with_class("volume") if "data-case" in attrs]


def test_every_box_is_in_the_page_on_its_frame(runs, records):
    _, page = gallery_and_page(runs)
    check_safe(page)
    expected = []
    for run in runs:
        for asked, row in zip(records, run.predictions, strict=True):
            for kind, boxes in (("target", asked.target.boxes), ("predicted", row.answer.boxes)):
                for box in boxes:
                    x1, y1, x2, y2 = box.xyxy
                    expected.append((run.name, asked.id, box.image + 1, kind, x1, y1, x2 - x1, y2 - y1))
    assert sorted(boxes_in(page)) == sorted(expected)


def test_every_frame_is_in_the_page_once_and_in_order(runs, records):
    _, page = gallery_and_page(runs)
    shades = {attrs["id"]: opened(attrs["href"]).getpixel((0, 0)) for tag, attrs in page.tags if tag == "image"}
    assert len(shades) == sum(len(asked.images) for asked in records)
    cards = volumes_in(page)
    assert len(cards) == len(runs) * len(records)
    for card in cards:
        shown = [shades[f"picture-{number}"] for number in card["data-pictures"].split()]
        count = len(shown)
        assert shown == [shade(card["data-case"], frame) for frame in range(1, count + 1)]
        assert json.loads(card["data-titles"]) == [f"frame {n} of {count}" for n in range(1, count + 1)]
    # Without script the figures are there and the controls, which need it, are not.
    assert all("hidden" in attrs for attrs in page.with_class("frames"))
    assert not any("hidden" in attrs for attrs in page.with_class("slice"))
    uses = {attrs["href"].removeprefix("#") for tag, attrs in page.tags if tag == "use"}
    assert uses <= set(shades)


def test_it_starts_where_the_finding_is(runs):
    gallery, page = gallery_and_page(runs)
    starts = {(card.system, card.record.id): card.volume.start + 1 for card in gallery.cards}
    # A frame with a target box, else with a predicted one, else the middle.
    assert starts == {("x", "a"): 7, ("y", "a"): 7, ("x", "b"): 3, ("y", "b"): 2, ("x", "c"): 1, ("y", "c"): 1}
    sliders = [attrs for tag, attrs in page.tags if tag == "input" and attrs["type"] == "range"]
    assert [int(attrs["value"]) for attrs in sliders] == [card.volume.start for card in gallery.cards]
    assert [int(attrs["max"]) + 1 for attrs in sliders] == [len(card.record.images) for card in gallery.cards]
    assert all(attrs["aria-label"] for attrs in sliders)


def test_strip_says_where_the_boxes_are(runs):
    gallery, page = gallery_and_page(runs)
    card = next(card for card in gallery.cards if (card.system, card.record.id) == ("x", "a"))
    assert card.volume.summary == (
        "target boxes: frame 7 of 16, frame 8 of 16; predicted boxes: frame 8 of 16, frame 12 of 16"
    )
    assert [mark.title for mark in card.volume.marks] == [
        "frame 7 of 16, 1 target box, 0 predicted boxes",
        "frame 8 of 16, 1 target box, 2 predicted boxes",
        "frame 12 of 16, 0 target boxes, 1 predicted box",
    ]
    assert [(mark.targets, mark.predicted) for mark in card.volume.marks] == [
        (True, False),
        (True, True),
        (False, True),
    ]
    assert card.volume.summary in [attrs.get("aria-label") for attrs in page.with_class("strip")]
    legend = 2  # the sample above the cards has two rectangles of each kind
    for kind, name in (("target", "mark-target"), ("predicted", "mark-predicted")):
        frames = {(system, case, frame) for system, case, frame, drawn, *_ in boxes_in(page) if drawn == kind}
        assert len(page.with_class(name)) == len(frames) + legend


def test_hostile_names_are_text_in_every_attribute(tmp_path):
    base = volume("v", 3, frames_with_boxes=(2,), label=HOSTILE)
    images = tuple(msgspec.structs.replace(image, view=HOSTILE) for image in base.images)
    hostile = msgspec.structs.replace(base, id=HOSTILE, images=images)
    data = write_data(tmp_path / "data", [hostile], benchmark="generic")
    _, page = gallery_and_page(
        load_runs([write_run(tmp_path / "run", data, [answer_on(hostile, (1,))], codec="plain")])
    )
    check_safe(page)
    (card,) = volumes_in(page)
    assert card["data-case"] == visible(HOSTILE)
    assert json.loads(card["data-titles"]) == [visible(f"{HOSTILE} frame {n} of 3") for n in (1, 2, 3)]
    assert f"target {visible(HOSTILE)} [8, 2, 24, 22]" in page.text
    assert visible(HOSTILE) in page.with_class("strip")[0]["aria-label"]
    # No file was drawn: the script is told so, and the page says it of the frames that it holds.
    assert card["data-pictures"] == "- - -"
    assert page.text.count("image not found") == 2
    assert len(boxes_in(page)) == 2


@pytest.mark.parametrize(
    ("frames", "views", "titles"),
    [
        ((7,), (None,), ["frame 7"]),
        ((7,), ("T1",), ["T1 frame 7"]),
        ((1, 2), (None, None), ["frame 1 of 2", "frame 2 of 2"]),
        ((1, 2), ("T1", "T1"), ["T1 frame 1 of 2", "T1 frame 2 of 2"]),
        ((3, 9), (None, None), ["frame 3, image 1 of 2", "frame 9, image 2 of 2"]),
        ((None, 4, 5), (None,) * 3, ["image 1 of 3", "frame 4, image 2 of 3", "frame 5, image 3 of 3"]),
        ((None, 4), ("ANT", None), ["ANT", "frame 4"]),
        ((None, None), (None, None), ["image 1", "image 2"]),
    ],
)
def test_titles_name_the_frame(frames, views, titles):
    images = tuple(
        Image(path=f"{n}.png", width=8, height=8, frame=frame, view=view)
        for n, (frame, view) in enumerate(zip(frames, views, strict=True))
    )
    asked = msgspec.structs.replace(record("0", "vqa", "yes"), images=images, target=Answer(label="yes"))
    assert [title_of(asked, place) for place in range(len(images))] == titles
    assert is_volume(asked) == (sum(frame is not None for frame in frames) > 1)


def test_a_single_slice_is_a_picture_with_its_frame(tmp_path):
    one = msgspec.structs.replace(
        volume("v", 1), images=(Image(path="s.png", width=64, height=64, frame=19),), task="image_detection"
    )
    data = write_data(tmp_path / "data", [one], benchmark="generic")
    gallery, page = gallery_and_page(
        load_runs([write_run(tmp_path / "run", data, [answer_on(one, (1,))], codec="plain")])
    )
    assert gallery.cards[0].volume is None
    assert volumes_in(page) == []
    assert "frame 19" in page.text
    assert "Cards of the same record" not in page.text


outline = Outline(x=0, y=0, width=1, height=1, title="t")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=60))
def test_no_frame_with_boxes_is_left_out(counts):
    views = [
        View(
            place=place,
            picture=Picture(
                number=place, image=Image(path="a.png", width=8 + place, height=9, frame=place + 1), uri="", problem=""
            ),
            title=f"frame {place + 1}",
            display_width=100,
            targets=(outline,) * targets,
            predicted=(outline,) * predicted,
        )
        for place, (targets, predicted) in enumerate(counts)
    ]
    found = build_volume(views)
    boxed = [place for place, pair in enumerate(counts) if any(pair)]
    assert [mark.place for mark in found.marks] == boxed
    assert [view.place for view in found.figures] == sorted({*boxed, found.start})
    assert [sum(map(len, (v.targets, v.predicted))) for v in found.figures if v.place in boxed] == [
        sum(pair) for pair in counts if any(pair)
    ]
    if any(targets for targets, _ in counts):
        assert found.start == min(place for place, (targets, _) in enumerate(counts) if targets)
    elif boxed:
        assert found.start == boxed[0]
    else:
        assert found.start == len(counts) // 2
    assert found.size == (8 + len(counts) - 1, 9)
    # Marks of neighbours do not touch, however many frames there are.
    assert 0 < found.mark_width < 1


def test_counts_in_words():
    pair = {"place": 0, "picture": None, "title": "t", "display_width": 1}
    assert boxes_in_words(View(**pair, targets=(outline,), predicted=())) == "1 target box, 0 predicted boxes"


def test_slices_are_small_pictures(tmp_path):
    PIL.Image.effect_noise((300, 400), 60).save(tmp_path / "s.png")
    framed, plain = (Image(path="s.png", width=300, height=400, frame=frame) for frame in (1, None))
    store = PictureStore(tmp_path)
    assert store.add([framed, plain], where="record r")
    assert opened(store.get(framed).uri).size == (SLICE_SIDE * 3 // 4, SLICE_SIDE)
    assert opened(store.get(plain).uri).size == (300, 400)


def test_page_stays_below_its_budget_and_shows_whole_cases(runs, monkeypatch):
    slices = 10  # of 23: the cases of 16 and 5 frames do not fit together
    budget = slices * len(data_uri(PIL.Image.new("L", (64, 64), 255)))
    monkeypatch.setattr(report_gallery, "PictureStore", functools.partial(PictureStore, budget=budget))
    gallery, page = gallery_and_page(runs)
    assert gallery.full
    assert 0 < gallery.cases < gallery.records
    assert 0 < sum(len(picture.uri) for picture in gallery.pictures) <= budget
    for card in gallery.cards:
        assert len(card.volume.pictures) == len(card.record.images)
        assert card.hidden_views == 0
    assert f"{gallery.cases} of 3 records (the pictures of one more would make the page too large)" in page.text


def test_very_long_volumes_show_the_frames_with_boxes_first(runs, records, monkeypatch):
    monkeypatch.setattr(report_gallery, "MAX_FRAMES", 4)
    gallery, page = gallery_and_page(runs)
    card = next(card for card in gallery.cards if (card.system, card.record.id) == ("x", "a"))
    assert card.volume.titles == ("frame 1 of 16", "frame 7 of 16", "frame 8 of 16", "frame 12 of 16")
    assert card.volume.start == 1
    assert "12 more images of this record are not shown" in page.text
    assert len([box for box in boxes_in(page) if box[:2] == ("x", "a")]) == 2 + 3
    check_safe(page)


def test_a_box_of_a_volume_keeps_its_overlap(runs):
    gallery, _ = gallery_and_page(runs)
    card = next(card for card in gallery.cards if (card.system, card.record.id) == ("x", "a"))
    on_8 = next(view for view in card.views if view.title == "frame 8 of 16")
    assert on_8.targets[0].title == "target tear [8, 8, 24, 28], IoU .882"
    assert {box.title for box in on_8.predicted} == {"predicted tear [9, 8, 25, 28], IoU .882"}
