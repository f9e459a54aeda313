"""The `bbox_2d` codec: thousandths there and back, and which image a box is on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schema import Answer, Ask, Box, Image
from collators.codecs.base import CodecError, Invalid
from collators.codecs.registry import get_codec

CODEC = get_codec("bbox_2d")
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def ask(*images):
    return Ask(task="vqa", images=images, question="Where?")


def test_thousandths_and_pixels_of_the_pitfall():
    question = ask(Image(path="a.png", width=640, height=480))
    box = Box(image=0, xyxy=(320, 120, 480, 360))
    text = CODEC.encode(Answer(boxes=(box,)), question)
    assert text == '[{"bbox_2d": [500, 250, 750, 750]}]'
    assert CODEC.decode(text, question).boxes == (box,)
    # Pixels of the resized image, as Qwen2.5-VL writes them, are another box here: the codec is of one family.
    assert CODEC.decode('[{"bbox_2d": [322, 119, 483, 357]}]', question).boxes[0].xyxy != box.xyxy


@st.composite
def questions(draw):
    count = draw(st.integers(1, 4))
    naming = draw(st.sampled_from(["frame", "view", "nothing"]))
    images = []
    for number in range(count):
        name = {"frame": {"frame": 3 + 2 * number}, "view": {"view": f"V{number}"}, "nothing": {}}[naming]
        images.append(
            Image(path=f"{number}.png", width=draw(st.integers(1, 3000)), height=draw(st.integers(1, 3000)), **name)
        )
    return ask(*images)


@settings(deadline=None)
@given(st.data())
def test_a_box_comes_back_within_half_a_thousandth(data):
    question = data.draw(questions())
    boxes = []
    for _ in range(data.draw(st.integers(1, 3))):
        image = data.draw(st.integers(0, len(question.images) - 1))
        sides = question.images[image].width, question.images[image].height
        low = [data.draw(st.floats(0, 0.98)) * side for side in sides]
        size = [data.draw(st.floats(0.002, 0.02)) * side for side in sides]
        xyxy = (low[0], low[1], low[0] + size[0], low[1] + size[1])
        boxes.append(Box(image=image, xyxy=xyxy, label=data.draw(st.none() | words)))
    answer = Answer(text=data.draw(st.none() | words), boxes=tuple(boxes))
    found = CODEC.decode(CODEC.encode(answer, question), question)
    assert found.text == answer.text
    for before, after in zip(answer.boxes, found.boxes, strict=True):
        assert (before.image, before.label) == (after.image, after.label)
        width, height = question.images[before.image].width, question.images[before.image].height
        for old, new, side in zip(before.xyxy, after.xyxy, (width, height) * 2, strict=True):
            assert abs(old - new) <= side / 2000 + 1e-6


@settings(deadline=None)
@given(st.floats(-10, 70), st.floats(-10, 70), st.floats(0.001, 90), st.floats(0.001, 90))
def test_every_written_box_can_be_read(x, y, width, height):
    question = ask(Image(path="a.png", width=64, height=48))
    text = CODEC.encode(Answer(boxes=(Box(image=0, xyxy=(x, y, x + width, y + height)),)), question)
    assert isinstance(CODEC.decode(text, question), Answer)


@settings(deadline=None)
@given(
    st.text(max_size=40)
    | st.builds(
        json.dumps,
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(["answer", "objects", "bbox_2d", "label", "image"]), inner, max_size=4
                )
            ),
            max_leaves=10,
        ),
    )
)
def test_any_text_is_an_answer_or_invalid(text):
    for question in (ask(Image(path="a", width=9, height=9)), ask(*[Image(path=p, width=9, height=9) for p in "ab"])):
        assert isinstance(CODEC.decode(text, question), Answer | Invalid)


def test_the_models_own_fence_is_read():
    question = ask(Image(path="a.png", width=1000, height=1000))
    text = '```json\n[\n\t{"bbox_2d": [1, 2, 3, 4], "label": "knee"}\n]\n```'
    assert CODEC.decode(text, question).boxes == (Box(image=0, xyxy=(1, 2, 3, 4), label="knee"),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"bbox_2d": [10, 20, 30, 40], "label": "a"}, {"bbox_2d": [50, 60', "invalid_json"),
        ('[{"bbox_2d": [10, 20, 30]}]', "invalid_bbox"),
        ('[{"bbox_2d": [10, 20, 30, null]}]', "invalid_bbox"),
        ('[{"bbox_2d": [10, 20, 30, NaN]}]', "invalid_bbox"),
        ('[{"bbox_2d": [10, 20, 30, "40"]}]', "invalid_bbox"),
        ('[{"bbox_2d": [10, 20, 5, 40]}]', "box_outside_image"),
        ('[{"bbox_2d": [10, 20, 30, 1001]}]', "box_outside_image"),
        ('[{"bbox_2d": [10, 20, 30, 40]}]', "box_without_frame"),
        ('[{"bbox_2d": [10, 20, 30, 40], "frame": 9}]', "frame_not_shown"),
        ("7", "json_not_object"),
    ],
)
def test_boxes_that_cannot_be_placed(text, reason):
    question = ask(*[Image(path=str(n), width=9, height=9, frame=n) for n in (1, 2)])
    assert CODEC.decode(text, question) == Invalid(reason)


def test_what_cannot_be_written_is_refused():
    question = ask(Image(path="a.png", width=9, height=9))
    with pytest.raises(CodecError, match="neither text nor label nor boxes"):
        CODEC.encode(Answer(), question)
    with pytest.raises(CodecError, match="lies on image 1"):
        CODEC.encode(Answer(boxes=(Box(image=1, xyxy=(0, 0, 1, 1)),)), question)
