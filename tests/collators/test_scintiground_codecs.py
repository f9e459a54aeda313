"""The codecs say back what they were told, and whatever text they read they give a value."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schema import Answer, Ask, Box, Image
from benchmarks.scintiground_text import CLASS_WORDS, TASKS
from collators.codecs.base import CodecError, Invalid
from collators.codecs.registry import get_codec

JSON, TAGS, OLD = (get_codec(f"scintiground_{name}") for name in ("json", "tags", "old_json"))
FORMS = (JSON, TAGS, OLD)
PAIR = (
    Image(path="a.jpg", width=256, height=1024, view="ANT"),
    Image(path="p.jpg", width=256, height=1024, view="POST"),
)


def ask(task="grounded_vqa", images=PAIR):
    return Ask(task=task, images=images, question="Where?")


def box(image=0, xyxy=(10.0, 20.0, 30.0, 40.0), label="left knee"):
    return Box(image=image, xyxy=xyxy, label=label)


sentences = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.strip)
regions = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="_<"), min_size=1, max_size=20).filter(
    str.strip
)


@st.composite
def boxes_on(draw, images, region, *, whole):
    numbers = draw(st.permutations(range(len(images))))[: draw(st.integers(1, len(images)))]
    side = (
        (lambda top: st.integers(0, top).map(float))
        if whole
        else (lambda top: st.floats(0, top, allow_subnormal=False))
    )
    found = []
    for number in numbers:
        spans = [
            draw(st.tuples(side(s), side(s)).map(sorted).filter(lambda p: p[0] < p[1]))
            for s in (images[number].width, images[number].height)
        ]
        (x1, x2), (y1, y2) = spans
        found.append(Box(image=number, xyxy=(x1, y1, x2, y2), label=region))
    return tuple(found)


@st.composite
def questions(draw, *, whole=True, tasks=TASKS):
    task = draw(st.sampled_from(tasks))
    views = draw(st.sampled_from([("ANT", "POST"), ("POST", "ANT"), ("ANT",), ("POST",)]))
    sizes = [(draw(st.integers(1, 3000)), draw(st.integers(1, 3000))) for _ in views]
    images = tuple(Image(path=f"{v}.png", width=w, height=h, view=v) for v, (w, h) in zip(views, sizes, strict=True))
    text = label = None
    if task in CLASS_WORDS:
        text, label = draw(sentences), draw(st.sampled_from(CLASS_WORDS[task]))
    found = draw(boxes_on(images, draw(regions), whole=whole)) if task != "vqa" else ()
    return Answer(text=text, label=label, boxes=found), ask(task, images)


@given(questions())
@settings(max_examples=200, deadline=None)
def test_multitask_json_says_back_what_it_was_told(case):
    answer, question = case
    text = JSON.encode(answer, question)
    assert text.isascii()
    assert JSON.decode(text, question) == answer


@given(questions(whole=False))
@settings(max_examples=150, deadline=None)
def test_old_json_says_back_fractions_too(case):
    answer, question = case
    assert OLD.decode(OLD.encode(answer, question), question) == answer


@given(questions(whole=False, tasks=("grounding", "grounded_vqa")))
@settings(max_examples=150, deadline=None)
def test_tags_say_back_what_they_were_told_or_refuse(case):
    answer, question = case
    try:
        text = TAGS.encode(answer, question)
    except CodecError:
        assert "<" in answer.text
        return
    assert TAGS.decode(text, question) == answer


@given(questions(whole=False, tasks=("grounding", "grounded_vqa")))
@settings(max_examples=100, deadline=None)
def test_multitask_json_decodes_a_fraction_of_a_pixel_to_an_invalid_answer_only(case):
    answer, question = case
    whole = all(v.is_integer() for b in answer.boxes for v in b.xyxy)
    decoded = JSON.decode(JSON.encode(answer, question), question)
    assert decoded == (answer if whole else Invalid("invalid_integer_bbox"))


def test_encoded_bytes_are_the_releases():
    answer = Answer(text="Hot — here.", label="abnormal", boxes=(box(), box(1, (1.0, 2.0, 30.5, 40.0))))
    fields = (
        '"answer":"Hot \\u2014 here.","region":"left_knee","class":"abnormal","boxes":['
        '{"view":"ANT","bbox":[10,20,30,40]},{"view":"PST","bbox":[1,2,30.5,40]}]}'
    )
    assert JSON.encode(answer, ask()) == '{"task":"grounded_vqa",' + fields
    assert OLD.encode(answer, ask()) == "{" + fields
    assert TAGS.encode(answer, ask()) == (
        "Hot — here. <REG>left_knee</REG><CLS>abnormal</CLS>"
        "<ANT><BBX>10,20,30,40</BBX></ANT><PST><BBX>1,2,30.5,40</BBX></PST>"
    )


def test_evidence_of_a_vqa_row_is_not_written():
    answer = Answer(text="Spot.", label="no", boxes=(box(),))
    assert JSON.encode(answer, ask("vqa")) == '{"task":"vqa","answer":"Spot.","class":"no"}'


def test_an_underscore_in_a_region_comes_back_as_a_blank():
    answer = Answer(boxes=(box(label="left_knee"),))
    decoded = JSON.decode(JSON.encode(answer, ask("grounding")), ask("grounding"))
    assert [b.label for b in decoded.boxes] == ["left knee"]


def test_a_posterior_box_lands_on_the_posterior_image_whatever_the_order():
    question = ask("grounding", (PAIR[1], PAIR[0]))
    text = '{"task":"grounding","region":"head","boxes":[{"view":"PST","bbox":[1,2,3,4]}]}'
    assert JSON.decode(text, question).boxes == (Box(image=0, xyxy=(1.0, 2.0, 3.0, 4.0), label="head"),)


@pytest.mark.parametrize("codec", FORMS, ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    ("task", "answer", "message"),
    [
        ("grounding", Answer(), "no box names a region"),
        ("grounding", Answer(boxes=(box(label=None),)), "no box names a region"),
        ("grounding", Answer(boxes=(box(), box(1, label="head"))), "several regions"),
        ("grounding", Answer(boxes=(box(), box())), "two boxes on the view ANT"),
        ("grounding", Answer(boxes=(box(7),)), "a box lies on image 7"),
        ("grounded_vqa", Answer(label="normal", boxes=(box(),)), "text is None"),
        ("grounded_vqa", Answer(text=" ", label="normal", boxes=(box(),)), "text is ' '"),
        ("grounded_vqa", Answer(text="x", boxes=(box(),)), "label is None"),
        ("grounded_vqa", Answer(text="x", label="yes", boxes=(box(),)), "must be abnormal or normal"),
        ("captioning", Answer(text="x"), "no form for the task 'captioning'"),
    ],
)
def test_what_cannot_be_expressed_is_refused(codec, task, answer, message):
    with pytest.raises(CodecError, match=message) as raised:
        codec.encode(answer, ask(task))
    assert codec.name in raised.value.where


@pytest.mark.parametrize("view", [None, "LAT", "ANT"])
def test_a_box_on_an_image_without_a_text_view_of_its_own_is_refused(view):
    images = (PAIR[0], Image(path="b.jpg", width=9, height=9, view=view))
    with pytest.raises(CodecError, match=f"its view is {view!r}"):
        JSON.encode(Answer(boxes=(box(1, (1.0, 1.0, 2.0, 2.0)),)), ask("grounding", images))


def test_tags_refuse_vqa_rather_than_lose_the_class():
    with pytest.raises(CodecError, match="its class would be lost"):
        TAGS.encode(Answer(text="x", label="no"), ask("vqa"))
    assert TAGS.decode("x", ask("vqa")) == Invalid("unsupported_task")


GOOD = {"task": "grounded_vqa", "answer": "x", "region": "head", "class": "normal"}
ANT = {"view": "ANT", "bbox": [1, 2, 3, 4]}


def grounded(*boxes, **changes):
    return json.dumps({**GOOD, "boxes": list(boxes) or [ANT], **changes})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "not_text"),
        (3, "not_text"),
        ("", "invalid_json"),
        ("```json\n{}\n```", "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ('{"a":' * 50_000, "invalid_json"),
        ("9" * 5000, "invalid_json"),
        ("null", "json_not_object"),
        (grounded(task=["grounded_vqa"]), "task_mismatch"),
        (grounded(task="vqa"), "task_mismatch"),
        (grounded(extra=1), "field_set_mismatch"),
        (grounded(answer=" "), "invalid_answer"),
        (grounded(answer="\ud800"), "invalid_answer"),
        (grounded(**{"class": ["normal"]}), "invalid_class"),
        (grounded(**{"class": "Normal"}), "invalid_class"),
        (grounded(region=""), "invalid_region"),
        (grounded(region="\udfff"), "invalid_region"),
        (grounded(boxes=None), "invalid_boxes"),
        (grounded(boxes=[]), "invalid_boxes"),
        (grounded(boxes={"view": "ANT"}), "invalid_boxes"),
        (grounded([1, 2, 3, 4]), "invalid_box_object"),
        (grounded({**ANT, "score": 1}), "invalid_box_object"),
        (grounded({**ANT, "view": ["ANT"]}), "invalid_box_view"),
        (grounded({**ANT, "view": "POST"}), "invalid_box_view"),
        (grounded(ANT, ANT), "duplicate_box_view"),
        (grounded({**ANT, "bbox": [1, 2, 3.0, 4]}), "invalid_integer_bbox"),
        (grounded({**ANT, "bbox": [True, 2, 3, 4]}), "invalid_integer_bbox"),
        (grounded({**ANT, "bbox": [1, 2, float("inf"), 4]}), "invalid_integer_bbox"),
        (grounded({**ANT, "bbox": [1, 2, float("nan"), 4]}), "invalid_integer_bbox"),
        (grounded({**ANT, "bbox": [3, 2, 3, 4]}), "non_increasing_bbox"),
        (grounded({**ANT, "bbox": [-1, 2, 3, 4]}), "box_outside_image"),
        (grounded({**ANT, "bbox": [1, 2, 257, 4]}), "box_outside_image"),
        (grounded({**ANT, "bbox": [1, 2, 10**400, 4]}), "box_outside_image"),
    ],
)
def test_each_fault_has_its_reason(text, reason):
    assert JSON.decode(text, ask()) == Invalid(reason)


def test_a_box_may_end_at_the_edge_of_the_image():
    assert JSON.decode(grounded({**ANT, "bbox": [0, 0, 256, 1024]}), ask()).boxes[0].xyxy == (0, 0, 256, 1024)


def test_a_box_for_a_view_that_is_not_shown_cannot_be_placed():
    text = grounded(ANT, {"view": "PST", "bbox": [1, 2, 3, 4]})
    assert JSON.decode(text, ask(images=PAIR[:1])) == Invalid("view_not_shown")


def test_the_later_of_two_equal_keys_counts():
    text = grounded()[:-1] + ', "region": "pelvis"}'
    assert JSON.decode(text, ask()).boxes[0].label == "pelvis"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("words only", "invalid_tags"),
        ("x <REG>head</REG><CLS>normal</CLS>", "invalid_boxes"),
        ("x <REG>head</REG><ANT><BBX>1,2,3,4</BBX></ANT>", "field_set_mismatch"),
        (" <REG>head</REG><CLS>normal</CLS><ANT><BBX>1,2,3,4</BBX></ANT>", "invalid_answer"),
        ("x <REG> </REG><CLS>normal</CLS><ANT><BBX>1,2,3,4</BBX></ANT>", "invalid_region"),
        ("x <REG>head</REG><CLS>NORMAL</CLS><ANT><BBX>1,2,3,4</BBX></ANT>", "invalid_class"),
        ("x <REG>head</REG><CLS>normal</CLS><ANT><BBX>1,2,3,4</BBX></PST>", "invalid_tags"),
        ("x <REG>head</REG><CLS>normal</CLS><ANT><BBX>1,2,3</BBX></ANT>", "invalid_bbox"),
        ("x <REG>head</REG><CLS>normal</CLS><ANT><BBX>1,2,nan,4</BBX></ANT>", "invalid_bbox"),
        ("x <REG>head</REG><CLS>normal</CLS><ANT><BBX>1,2,inf,4</BBX></ANT>", "invalid_bbox"),
        ("x <REG>head</REG><CLS>normal</CLS><ANT><BBX>5,2,3,4</BBX></ANT>", "non_increasing_bbox"),
        ("x <REG>head</REG><CLS>normal</CLS><ANT><BBX>1,2,3,4</BBX></ANT> and more", "invalid_tags"),
        (7, "not_text"),
    ],
)
def test_each_fault_of_the_tag_form_has_its_reason(text, reason):
    assert TAGS.decode(text, ask()) == Invalid(reason)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw):
    """A valid text with one value replaced, or with a few characters cut or put in."""
    task = draw(st.sampled_from(TASKS))
    payload = {**GOOD, "task": task, "boxes": [dict(ANT)]}
    if draw(st.booleans()):
        holder = draw(st.sampled_from([payload, payload["boxes"][0]]))
        holder[draw(st.sampled_from([*holder, "other"]))] = draw(json_values)
        return json.dumps(payload), task
    text = json.dumps(payload)
    at, cut = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
    return text[:at] + draw(st.text(max_size=4)) + text[at + cut :], task


@given(
    st.one_of(mutated(), st.tuples(st.text(max_size=80), st.sampled_from([*TASKS, "other"]))), st.sampled_from(FORMS)
)
@settings(max_examples=500, deadline=None)
def test_decoding_never_raises(case, codec):
    text, task = case
    decoded = codec.decode(text, ask(task))
    assert isinstance(decoded, Answer | Invalid)
    if isinstance(decoded, Answer):
        assert decoded.boxes or task == "vqa"
        assert all(b.xyxy[2] <= 256 and b.xyxy[3] <= 1024 and min(b.xyxy) >= 0 for b in decoded.boxes)


@given(
    st.lists(
        st.sampled_from(
            ["<REG>", "</REG>", "<CLS>", "</CLS>", "normal", "<ANT>", "<BBX>", "1,2,3,4", "</BBX>", "</ANT>", " ", "x"]
        ),
        max_size=14,
    ).map("".join)
)
@settings(max_examples=300, deadline=None)
def test_decoding_broken_tags_never_raises(text):
    assert isinstance(TAGS.decode(text, ask()), Answer | Invalid)
