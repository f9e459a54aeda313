"""The published box parser, sentence by sentence, beyond the reference cases."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.sgmri.parse import read_boxes

SIDE = (320, 320)


def read(text, size=SIDE):
    """Boxes with frames, as plain tuples."""
    return [(frame, *box) for frame, box in read_boxes(text, size).boxes]


def normalized(*boxes, **fields):
    return json.dumps(
        {"bboxes": [dict(zip(("min_x", "min_y", "max_x", "max_y"), box, strict=True)) for box in boxes]} | fields
    )


TAG, TOKENS = "<bbx>[1,2,3,4]</bbx>", "<|box_start|>(100,100),(200,300)<|box_end|>"
CALL, PAIRS, OBJECT_2D = "bbox(10,20,30,50)", "(10,20),(40,60)", '{"bbox_2d": [10, 20, 50, 70]}'
OBJECT, BRACKETS = '{"x": 5, "y": 6, "width": 7, "height": 8}', "[300, 2, 8, 9]"
IN_ORDER = [
    ("bbx_tag", TAG),
    ("box_tokens", TOKENS),
    ("bbox_call", CALL),
    ("paren_pairs", PAIRS),
    ("bbox_2d_json", OBJECT_2D),
    ("xywh_json", OBJECT),
    ("brackets", BRACKETS),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)), ids=[name for name, _ in IN_ORDER])
def test_the_first_step_that_yields_a_box_ends_the_parse(first):
    texts = [text for _, text in reversed(IN_ORDER[first:])]
    reading = read_boxes(" and ".join(texts), SIDE)
    assert reading.step == IN_ORDER[first][0]
    assert reading.boxes == read_boxes(IN_ORDER[first][1], SIDE).boxes


@pytest.mark.parametrize("spelling", ["bbx", "bbox", "bbo", "bbxx", "bboxo"])
def test_the_tag_has_many_spellings(spelling):
    assert read(f"<{spelling}> [1, 2, 3, 4] <\\bbx>") == [(None, 1, 2, 3, 4)]


@pytest.mark.parametrize(
    "text", ["<BBX>[1;2;3;4]</BBX>", "<bb>[1;2;3;4]</bb>", "<bbx>[1,2,3]</bbx>", "<bbx>[1,2,3,a]</bbx>"]
)
def test_what_is_no_tag(text):
    assert read(text) == []


@pytest.mark.parametrize("separator", ["", " ", ":", "-", ",", " : ", ":\n", " ,"])
@pytest.mark.parametrize("word", ["Frame", "frame"])
def test_a_frame_stands_directly_before_its_box(word, separator):
    assert read(f"{word} 7{separator}{TAG}")[0][0] == 7


@pytest.mark.parametrize(
    "prefix",
    [
        "Frames 7-9: ",
        "Frame 7 at ",
        "Frame #7: ",
        "FRAME 7: ",
        "Slice 7: ",
        "Frame 7: - ",
        "Frame 7; ",
        "Frame7: ",
        "Frame 7 (left) ",
    ],
)
@pytest.mark.parametrize("box", [TAG, TOKENS, PAIRS, OBJECT_2D, BRACKETS])
def test_other_wordings_give_no_frame(prefix, box):
    assert read(prefix + box)[0][0] is None


def test_calls_read_their_frame_in_any_case_too():
    assert read("FRAME 7: BBox(10,20,30,50)") == [(7, 10, 20, 20, 30)]


@pytest.mark.parametrize(
    ("rejected", "box"),
    [
        ("<bbx>[1,2]</bbx>", TAG),
        ("<|box_start|>(9,9),(1,1)<|box_end|>", TOKENS),
        ("bbox(9,9,1,1)", CALL),
        ("(9,9),(1,1)", PAIRS),
        ('{"bbox_2d": [9, 9, 1, 1]}', OBJECT_2D),
        ("[1, 2, 0, 4]", BRACKETS),
    ],
)
def test_the_frame_of_a_rejected_box_is_carried_over(rejected, box):
    assert [frame for frame, *_ in read(f"{box} Frame 4: {rejected} {box} Frame 5: {box} {box}")] == [None, 4, 5, 5]


def test_the_normalized_document_must_be_the_whole_text():
    document = normalized((0.25, 0.5, 0.5, 0.75))
    assert read(f"  {document}\n") == [(None, 80, 160, 80, 80)]
    assert read(f"Here: {document}") == []


def test_the_unit_is_decided_for_each_normalized_box():
    assert read(normalized((0, 0, 1, 1), (0, 0, 1, 1.5))) == [(None, 0, 0, 320, 320), (None, 0, 0, 1, 1.5)]


def test_what_a_broken_document_gave_is_joined_by_tags():
    text = normalized((0, 0, 0.5, 0.5), (0, 0, None, 1), (0, 0, 0.25, 0.25), reasoning=f"Frame 3: {TAG}")
    assert read_boxes(text, SIDE).step == "bbx_tag"
    assert read(text) == [(None, 0, 0, 160, 160), (3, 1, 2, 3, 4)]


def test_a_normalized_box_without_area_does_not_break_the_document():
    assert read(normalized((0.5, 0, 0.5, 1), (0, 0, 0.25, 0.25))) == [(None, 0, 0, 80, 80)]


@pytest.mark.parametrize("text", ["bbox(1,1,900,900)", "(1,1),(900,900)", "<bbx>[1,1,899,899]</bbx>"])
def test_these_forms_are_never_scaled(text):
    assert read(text) == [(None, 1, 1, 899, 899)]


@pytest.mark.parametrize(
    ("numbers", "box"),
    [
        ("[0, 0, 320, 320]", (0, 0, 320, 320)),
        ("[0, 0, 320, 321]", (0, 0, 102.4, 102.72)),
        ("[10, 10, 10, 20]", None),
        ('"1234"', (1, 2, 2, 2)),
        ('["10", "20", "50", "70"]', (10, 20, 40, 50)),
        ("[1, 2, 3]", None),
    ],
)
def test_corners_of_bbox_2d(numbers, box):
    reading = read_boxes(f'{{"bbox_2d": {numbers}}}', SIDE)
    assert (reading.step == "bbox_2d_json") == (box is not None)
    if box is not None:
        assert reading.boxes[0].box == pytest.approx(box)


def test_thousandths_scale_each_axis_by_its_side():
    assert read('{"bbox_2d": [100, 100, 500, 500]}', (400, 200)) == [(None, 40, 20, 160, 80)]
    assert read(TOKENS, (400, 200)) == [(None, 40, 20, 40, 40)]


def test_xywh_objects_keep_their_own_frame_and_skip_a_word_as_frame():
    bad, good = '{"x":1,"y":2,"width":3,"height":4,"frame":"six"}', '{"x":1,"y":2,"width":3,"height":4,"frame":"6"}'
    assert read(f"Frame 2: {bad} {good} {OBJECT}") == [(6, 1, 2, 3, 4), (None, 5, 6, 7, 8)]


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("[1.5, 2, 3, 4]", (1.5, 2, 1.5, 2)),
        ("[10000, 2, 8, 1]", (3200, 0.64, 2.56, 0.32)),
        ("[10001, 2, 8, 1]", None),
        ("[ 1, 2, 3, 4]", None),
        ("[a, 2, 3, 4]", None),
        ("[1 , 2\n, 3, 4 ]", (1, 2, 2, 2)),
        ("[5, 6, 5, 9]", (5, 6, 5, 9)),
    ],
)
def test_lists_in_brackets(text, box):
    assert [each.box for each in read_boxes(text, SIDE).boxes] == ([] if box is None else [pytest.approx(box)])


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ('{"bbox_2d": null}', TypeError),
        ('{"bbox_2d": 5}', TypeError),
        ('{"bbox_2d": [1, 2, null, 4]}', TypeError),
        ('{"x": null, "y": 2, "width": 3, "height": 4}', TypeError),
        ('{"x": 1, "y": 2, "width": 3, "height": 4, "frame": null}', TypeError),
        ('{"x": 1, "y": 2, "width": 0, "height": 4, "frame": null}', TypeError),
        ('{"x": 1, "y": 2, "width": 3, "height": 4, "frame": 1e999}', OverflowError),
        (f'{{"bbox_2d": [1, 2, 3, {10**400}]}}', OverflowError),
        (f"Frame {'9' * 5000}: {TAG}", ValueError),
        ("[" * 100_000, RecursionError),
    ],
)
def test_where_the_published_parser_stops(text, stop):
    with pytest.raises(stop):
        read_boxes(text, SIDE)


numbers = st.one_of(
    st.integers(-5, 1200), st.floats(-5, 1200).map(lambda value: round(value, 2)), st.sampled_from(["x", ""])
)
four = st.lists(numbers, min_size=3, max_size=5).map(lambda values: ",".join(map(str, values)))
frames = st.sampled_from(["", "Frame 3: ", "frame 0 -", "Frames 2, 3: ", "Slice 4 ", "Frame x: "])
words = st.integers(-5, 1200) | st.text(max_size=4)
corners = st.fixed_dictionaries({key: words | st.none() for key in ("min_x", "min_y", "max_x", "max_y")})
pairs = st.fixed_dictionaries({"bbox_2d": st.lists(words, max_size=5)}, optional={"frame": words | st.none()})
sides = st.fixed_dictionaries(dict.fromkeys(("x", "y", "width", "height"), words), optional={"frame": words})
forms = st.one_of(
    four.map("<bbx>[{}]</bbx>".format),
    four.map("[{}]".format),
    four.map("bbox({})".format),
    st.tuples(numbers, numbers, numbers, numbers).map(lambda c: "({},{}),({},{})".format(*c)),
    st.tuples(numbers, numbers, numbers, numbers).map(lambda c: "<|box_start|>({},{}),({},{})<|box_end|>".format(*c)),
    (pairs | sides).map(json.dumps),
    st.text(max_size=12),
)
texts = st.lists(st.tuples(frames, forms).map("".join), max_size=4).map(" ".join)
sizes = st.sampled_from([None, SIDE, (256, 256)])


documents = st.lists(corners | pairs | sides | st.none(), max_size=3).map(lambda boxes: json.dumps({"bboxes": boxes}))


@given(texts | documents | st.text(), sizes)
@settings(max_examples=400, deadline=None)
def test_no_text_stops_the_parser_but_for_a_null_in_an_object(text, size):
    reading = read_boxes(text, size)
    assert (reading.step is None) == (reading.boxes == ())
    if reading.step not in ("bbx_tag", None):
        assert all(width > 0 and height > 0 for _, (_, _, width, height) in reading.boxes)


nulls = st.fixed_dictionaries({key: st.integers(0, 9) | st.none() for key in ("x", "y", "width", "height", "frame")})


@given(
    nulls | st.fixed_dictionaries({"bbox_2d": st.lists(st.integers(0, 9) | st.none(), min_size=4, max_size=4)}), sizes
)
@settings(deadline=None)
def test_a_null_in_an_object_raises_a_type_error_and_nothing_else_does(item, size):
    values = item.get("bbox_2d", list(item.values()))
    if None in values:
        with pytest.raises(TypeError):
            read_boxes(json.dumps(item), size)
    else:
        read_boxes(json.dumps(item), size)


@given(texts, sizes)
@settings(max_examples=200, deadline=None)
def test_words_around_boxes_change_nothing(text, size):
    assert read_boxes(f"Seen: {text} .", size) == read_boxes(text, size)


@given(
    st.lists(st.tuples(*[st.integers(0, 400)] * 4), min_size=1, max_size=4),
    st.lists(st.integers(0, 60), min_size=4, max_size=4),
    sizes,
)
@settings(deadline=None)
def test_tags_give_back_what_was_written(boxes, frames, size):
    text = "; ".join(f"Frame {frame}: <bbx>{list(box)}</bbx>" for frame, box in zip(frames, boxes, strict=False))
    assert read(text, size) == [(frame, *box) for frame, box in zip(frames, boxes, strict=False)]
