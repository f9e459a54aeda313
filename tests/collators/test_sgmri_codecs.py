"""SGMRI codecs: round trips, what is read in which form, and texts that hold no answer."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schema import Answer, Ask, Box, Image
from benchmarks.sgmri import YES_NO
from collators.codecs.base import CodecError, Invalid
from collators.codecs.registry import get_codec

JSON, FIRST, TEXT = (get_codec(name) for name in ("sgmri_json", "sgmri_answer_first", "sgmri_text"))
VOLUME = tuple(Image(path=f"v/v_slice_{n:03d}.png", width=320, height=320, frame=n) for n in range(1, 31))
SLICE = (Image(path="v/v_slice_019.png", width=320, height=320, frame=19),)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(str.strip)
pixels = st.integers(0, 4000).map(lambda quarter: quarter / 4)


def ask(task="volume_localization", images=VOLUME, answer_type="open_ended", choices=()):
    return Ask(task=task, images=images, question="Where?", answer_type=answer_type, choices=choices)


@st.composite
def boxes(draw, images, *, labels=words):
    found = []
    for _ in range(draw(st.integers(0, 4))):
        x, y, width, height = draw(pixels), draw(pixels), draw(pixels) + 0.25, draw(pixels) + 0.25
        image = draw(st.integers(0, images - 1))
        found.append(Box(image=image, xyxy=(x, y, x + width, y + height), label=draw(labels)))
    return tuple(found)


@pytest.mark.parametrize("codec", [JSON, FIRST])
@pytest.mark.parametrize(("level", "images"), [("volume", VOLUME), ("image", SLICE)])
@settings(deadline=None)
@given(st.data())
def test_json_forms_give_back_every_answer(codec, level, images, data):
    question = ask(f"{level}_{data.draw(st.sampled_from(['localization', 'captioning']))}", images)
    answer = Answer(
        text=data.draw(words),
        boxes=data.draw(boxes(len(images))),
        reasoning=data.draw(st.none() | words),
    )
    assert codec.decode(codec.encode(answer, question), question) == answer


@settings(deadline=None)
@given(
    boxes(len(VOLUME), labels=st.none()),
    st.sampled_from(["In the left knee.", "At <bbx>[1,2,3,4]</bbx>.", "on frame 3"]),
)
def test_the_text_form_gives_back_boxes_and_their_frames(found, text):
    question = ask()
    decoded = TEXT.decode(TEXT.encode(Answer(text=text, boxes=found), question), question)
    assert sorted(decoded.boxes, key=str) == sorted(found, key=str)


@settings(deadline=None)
@given(
    st.text(max_size=60)
    | st.builds(
        json.dumps,
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(["answer", "bboxes", "frame", "bbox", "label", "reasoning"]), inner, max_size=5
                )
            ),
            max_leaves=12,
        ),
    )
)
def test_any_text_is_an_answer_or_invalid(text):
    for codec in (JSON, FIRST, TEXT):
        for task in ("volume_localization", "volume_detection", "elsewhere"):
            assert isinstance(codec.decode(text, ask(task)), Answer | Invalid)


def test_the_published_target_is_written_as_the_authors_describe_it():
    box = Box(image=6, xyxy=(60, 90, 100, 112), label="Joint Effusion")
    answer = Answer(text="Lateral.", boxes=(box,), reasoning="Bright fluid.")
    assert JSON.encode(answer, ask()) == (
        '{"reasoning": "Bright fluid.", "answer": "Lateral.", '
        '"bboxes": [{"frame": 7, "label": "Joint Effusion", "bbox": [60, 90, 40, 22]}]}'
    )
    assert FIRST.encode(answer, ask()) == (
        '{"answer":"Lateral.","bboxes":[{"frame":7,"label":"Joint Effusion","bbox":[60,90,40,22]}],'
        '"reasoning":"Bright fluid."}'
    )
    assert TEXT.encode(answer, ask()) == "Lateral. Frame 7: <bbx>[60,90,40,22]</bbx>. Bright fluid."


def test_at_image_level_the_frame_is_one_in_the_published_form_and_absent_in_ours():
    box = Box(image=0, xyxy=(1, 2, 4, 6), label="Mass")
    question = ask("image_localization", SLICE)
    assert json.loads(JSON.encode(Answer(text="a", boxes=(box,)), question))["bboxes"][0]["frame"] == 1
    assert "frame" not in json.loads(FIRST.encode(Answer(text="a", boxes=(box,)), question))["bboxes"][0]
    for frame in ('"frame": 1,', '"frame": 19,', '"frame": null,', ""):
        text = f'{{"answer": "a", "bboxes": [{{{frame} "label": "Mass", "bbox": [1, 2, 3, 4]}}]}}'
        assert JSON.decode(text, question).boxes == (box,)
    assert JSON.decode(text.replace('"label"', '"frame": 7, "label"'), question) == Invalid("frame_not_in_volume")


def test_a_text_that_states_its_boxes_is_kept_and_any_other_is_put_right():
    box = Box(image=6, xyxy=(60, 90, 100, 112))
    stated = "A tear at Frame 7: <bbx>[60,90,40,22]</bbx>."
    assert TEXT.encode(Answer(text=stated, boxes=(box,)), ask()) == stated
    wrong = Answer(text="A tear at Frame 8: <bbx>[60,90,40,22]</bbx>.", boxes=(box,))
    assert TEXT.decode(TEXT.encode(wrong, ask()), ask()).boxes == (box,)


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("Frame 7: <bbx>[1,2,3,4]</bbx>", [7]),
        ("on FRAME #7, at <bbx>[1, 2, 3, 4]</bbx> and <bbx>[1,2,3,4]</bbx>", [7, 7]),
        ("Slice 7 at <bbx>[1,2,3,4]</bbx>; frame 9 <bbx>[1,2,3,4]</bbx>", [7, 9]),
        ("Frames 7-9: <bbx>[1,2,3,4]</bbx>", [7, 8, 9]),
        ("frames 7, 9 and 11 <bbx>[1,2,3,4]</bbx>", [7, 9, 11]),
        ("on frame 7, 3 lesions: <bbx>[1,2,3,4]</bbx>", [7]),
    ],
)
def test_the_frame_grammar(text, frames):
    assert [VOLUME[box.image].frame for box in TEXT.decode(text, ask()).boxes] == frames


@pytest.mark.parametrize(
    ("codec", "text", "reason"),
    [
        (TEXT, "at <bbx>[1,2,3,4]</bbx>", "box_without_frame"),
        (TEXT, "Frame 31: <bbx>[1,2,3,4]</bbx>", "frame_not_in_volume"),
        (TEXT, "Frame 7: <bbx>[1,2,3]</bbx>", "invalid_bbox"),
        (TEXT, "Frame 7: <bbx>[1,2,0,4]</bbx>", "empty_bbox"),
        (JSON, "[]", "json_not_object"),
        (JSON, '{"bboxes": []}', "invalid_answer"),
        (JSON, '{"answer": "a", "bboxes": [{"frame": 7, "bbox": [1, 2, 3]}]}', "invalid_bbox"),
        (JSON, '{"answer": "a", "bboxes": [{"frame": 7, "bbox": [1, 2, 3, null]}]}', "invalid_bbox"),
        (JSON, '{"answer": "a", "bboxes": [{"frame": 7, "bbox": [1, 2, 3, 1e999]}]}', "invalid_bbox"),
        (JSON, '{"answer": "a", "bboxes": [{"frame": 7, "bbox": [1, 2, 3, true]}]}', "invalid_bbox"),
        (JSON, '{"answer": "a", "bboxes": [{"frame": "7", "bbox": [1, 2, 3, 4]}]}', "invalid_frame"),
        (JSON, '{"answer": "a", "bboxes": [{"bbox": [1, 2, 3, 4]}]}', "box_without_frame"),
        (JSON, '{"answer": "a", "bboxes": {}}', "invalid_bboxes"),
        (JSON, '{"answer": "a", "bboxes": [{"frame": 7, "bbox": [1, 2, ' + "9" * 400 + ", 4]}]}", "invalid_bbox"),
        (JSON, '{"answer": "a"', "invalid_json"),
    ],
)
def test_texts_that_cannot_be_placed(codec, text, reason):
    assert codec.decode(text, ask()) == Invalid(reason)


def test_boxes_belong_to_tasks_with_boxes():
    box = Box(image=6, xyxy=(60, 90, 100, 112), label="Mass")
    question = ask("volume_detection", answer_type="closed_ended", choices=YES_NO)
    assert FIRST.encode(Answer(text="Yes", boxes=(box,)), question) == '{"answer":"Yes"}'
    assert FIRST.decode('{"answer":"Yes","bboxes":"?"}', question) == Answer(text="Yes", label="Yes")


@pytest.mark.parametrize(
    ("text", "answer", "label"),
    [
        ("Yes. A bright area.", "Yes", "Yes"),
        ("No", "No", "No"),
        ("The scan shows fluid. Therefore, the final answer is: **Yes**.", "Yes", "Yes"),
        ("my answer is no", "no", "No"),
        ("Normal study, note the clear joint.", "Normal study, note the clear joint", None),
    ],
)
def test_the_answer_of_a_closed_question_is_found_in_words(text, answer, label):
    decoded = TEXT.decode(text, ask("volume_detection", answer_type="closed_ended", choices=YES_NO))
    assert (decoded.text, decoded.label) == (answer, label)


def test_a_letter_is_a_choice_with_and_without_brackets():
    question = ask("image_classification", SLICE, "single_choice", ("A", "B", "C"))
    assert TEXT.decode("(B). Since it is bright.", question).label == "B"
    assert FIRST.decode('{"answer":"b"}', question).label == "B"
    assert FIRST.decode('{"answer":"A, B"}', question).label is None


def test_only_a_yes_no_question_has_a_class_directly_after_the_prompt():
    form = FIRST.closed_form(ask("volume_detection", answer_type="closed_ended", choices=YES_NO))
    written = FIRST.encode(Answer(text="No", reasoning="r"), ask("volume_detection"))
    assert written.startswith(f"{form.opening}No{form.closing}")
    assert FIRST.closed_form(ask()) is JSON.closed_form(ask()) is None


def test_what_cannot_be_written_is_refused():
    with pytest.raises(CodecError, match="not a task of sgmri"):
        JSON.encode(Answer(text="a"), ask("vqa"))
    with pytest.raises(CodecError, match="text is None"):
        FIRST.encode(Answer(), ask())
    with pytest.raises(CodecError, match="no numbered frame"):
        TEXT.encode(Answer(text="a", boxes=(Box(image=30, xyxy=(0, 0, 1, 1)),)), ask())
