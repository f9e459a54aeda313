"""Where the class stands: the class-first form, and the place of the class in any text."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schema import Answer, Ask, Box, Image
from benchmarks.scintiground_text import CLASS_WORDS, TASKS
from collators.codecs.base import Invalid
from collators.codecs.registry import get_codec

FIRST = get_codec("scintiground_class_first")
OFFICIAL = get_codec("scintiground_json")
CODECS = tuple(get_codec(f"scintiground_{name}") for name in ("class_first", "json", "old_json", "tags"))
PAIR = (
    Image(path="a.jpg", width=256, height=1024, view="ANT"),
    Image(path="p.jpg", width=256, height=1024, view="POST"),
)
ANT = Box(image=0, xyxy=(10.0, 20.0, 30.0, 40.0), label="left knee")
POST = Box(image=1, xyxy=(1.0, 2.0, 3.0, 4.0), label="left knee")
SIGNS = ['"', "\\", '","class":"', '"class":"no"', "{", "}", "<", "</CLS>", "<REG>a</REG><CLS>", "—", "骨", " ", "\n"]
sentences = (
    st.lists(st.sampled_from(SIGNS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=5)
    .map("".join)
    .filter(str.strip)
)


def ask(task):
    return Ask(task=task, images=PAIR, question="Where?")


@st.composite
def answers(draw, tasks=TASKS):
    task = draw(st.sampled_from(tasks))
    text = label = None
    if task in CLASS_WORDS:
        text, label = draw(sentences), draw(st.sampled_from(CLASS_WORDS[task]))
    boxes = draw(st.sampled_from([(ANT,), (POST,), (ANT, POST)])) if task != "vqa" else ()
    return Answer(text=text, label=label, boxes=boxes), ask(task)


# The class-first form.


def test_the_class_comes_first_and_the_sentence_last():
    answer = Answer(text="Hot — here.", label="abnormal", boxes=(ANT, POST))
    boxes = '"region":"left_knee","boxes":[{"view":"ANT","bbox":[10,20,30,40]},{"view":"PST","bbox":[1,2,3,4]}]'
    sentence = '"answer":"Hot \\u2014 here."}'
    grounded = '{"task":"grounded_vqa","class":"abnormal",' + boxes + "," + sentence
    assert FIRST.encode(answer, ask("grounded_vqa")) == grounded
    assert FIRST.encode(Answer(text="Hot — here.", label="yes"), ask("vqa")) == (
        '{"task":"vqa","class":"yes",' + sentence
    )
    alike = Answer(boxes=(ANT, POST))
    assert FIRST.encode(alike, ask("grounding")) == OFFICIAL.encode(alike, ask("grounding"))


@given(answers())
@settings(max_examples=150, deadline=None)
def test_it_says_back_what_it_was_told_and_differs_from_the_official_text_in_order_only(case):
    answer, question = case
    text = FIRST.encode(answer, question)
    assert text.isascii()
    assert FIRST.decode(text, question) == OFFICIAL.decode(text, question) == answer
    assert json.loads(text) == json.loads(OFFICIAL.encode(answer, question))
    assert len(text) == len(OFFICIAL.encode(answer, question))


@given(
    st.sampled_from(TASKS),
    st.dictionaries(
        st.sampled_from(["task", "class", "answer", "region", "boxes", "x"]),
        st.sampled_from([*TASKS, "yes", "normal", "head", None, [], [{"view": "ANT", "bbox": [1, 2, 3, 4]}]]),
    ),
)
@settings(max_examples=200, deadline=None)
def test_its_gate_is_the_official_one(task, payload):
    text = json.dumps(payload)
    assert FIRST.decode(text, ask(task)) == OFFICIAL.decode(text, ask(task))


def test_one_change_makes_it_invalid_for_the_same_reason():
    good = {"task": "vqa", "class": "yes", "answer": "x"}
    for change, reason in [
        ({"class": "abnormal"}, "invalid_class"),
        ({"answer": " "}, "invalid_answer"),
        ({"region": "head"}, "field_set_mismatch"),
        ({"task": "grounded_vqa"}, "task_mismatch"),
    ]:
        assert FIRST.decode(json.dumps(good | change), ask("vqa")) == Invalid(reason)


# What label scoring needs to know of a codec.


def test_which_questions_have_a_class_and_where():
    forms = {codec.name: {task: codec.closed_form(ask(task)) for task in TASKS} for codec in CODECS}
    assert all(form["grounding"] is None for form in forms.values())
    for name, form in forms.items():
        found = {task: (closed.labels, closed.opening) for task, closed in form.items() if closed is not None}
        tasks = ["grounded_vqa"] if name == "scintiground_tags" else ["vqa", "grounded_vqa"]
        first = name == "scintiground_class_first"
        assert found == {t: (CLASS_WORDS[t], f'{{"task":"{t}","class":"' if first else None) for t in tasks}
    plain = get_codec("plain")
    closed = Ask(task="vqa", images=PAIR, question="Hot?", choices=("yes", "no"))
    assert plain.closed_form(closed) is None
    assert plain.class_offset("yes", closed) is None
    assert all(codec.closed_form(ask("other")) is None for codec in CODECS)
    assert all(codec.class_offset('{"class":"yes"}', ask("other")) is None for codec in CODECS)


@given(answers(tasks=("vqa", "grounded_vqa")), st.sampled_from(CODECS))
@settings(max_examples=300, deadline=None)
def test_in_every_target_the_class_and_what_closes_it_stand_where_the_codec_says(case, codec):
    answer, question = case
    form = codec.closed_form(question)
    if form is None or (codec.name == "scintiground_tags" and any(m in answer.text for m in "<>")):
        return
    text = codec.encode(answer, question)
    offset = codec.class_offset(text, question)
    assert text[offset:].startswith(answer.label + form.closing)
    if form.opening is not None:
        assert text[:offset] == form.opening
    # Whatever the class, the rest is the same: the classes differ in nothing else.
    for label in form.labels:
        other = codec.encode(Answer(text=answer.text, label=label, boxes=answer.boxes), question)
        assert other == text[:offset] + label + text[offset + len(answer.label) :]
    # A text cut anywhere after the class began has its place; one cut before has none.
    for end in range(len(text)):
        assert codec.class_offset(text[:end], question) == (offset if end >= offset else None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["yes", "no", "class"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["class", "a"]), inner, max_size=2),
    max_leaves=5,
)
blanks = st.sampled_from(["", " ", "\n\t", "\r"])


@st.composite
def objects(draw):
    """Pairs and the text of an object with them, blanks anywhere, keys perhaps twice."""
    keys = st.sampled_from(["task", "answer", "class", "boxes", 'q"'])
    pairs = draw(st.lists(st.tuples(keys, json_values), max_size=5))
    members = [
        f"{draw(blanks)}{json.dumps(key)}{draw(blanks)}:{draw(blanks)}{json.dumps(value)}{draw(blanks)}"
        for key, value in pairs
    ]
    return pairs, f"{draw(blanks)}{{{','.join(members) or draw(blanks)}}}{draw(blanks)}"


@given(objects(), st.text(max_size=5))
@settings(max_examples=300, deadline=None)
def test_the_place_in_any_object_is_that_of_its_last_class_in_words(case, rest):
    pairs, text = case
    said = [value for key, value in pairs if key == "class" and isinstance(value, str)]
    for shown in (text, text + rest):
        offset = OFFICIAL.class_offset(shown, ask("vqa"))
        if said:
            assert json.JSONDecoder().raw_decode(shown, offset - 1)[0] == said[-1]
        else:
            assert offset is None


@given(st.sampled_from(CODECS), st.sampled_from([*TASKS, "other"]), sentences | st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_has_a_place_inside_it_or_none(codec, task, text):
    offset = codec.class_offset(text, ask(task))
    assert offset is None or 0 < offset <= len(text)
    decoded = codec.decode(text, ask(task))
    assert isinstance(decoded, Invalid) or decoded.label is None or text[offset:].startswith(decoded.label)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "class",
        '"class":"yes"',
        '["class":"yes"]',
        '{"class"',
        '{"class":',
        '{"class":yes',
        '{"class":["yes"]}',
        '{"answer":"the class \\",\\"class\\":\\"yes',
        '{"answer":{"class":"yes"}}',
        '{"answer":"a" "class":"yes"}',
        '{"boxes":' + "[" * 100_000,
        '{"answer":' + "9" * 5000 + ',"class":"yes"}',
    ],
)
def test_texts_without_a_place(text):
    assert OFFICIAL.class_offset(text, ask("vqa")) is None


def test_tags_have_the_class_after_the_last_region():
    tags = get_codec("scintiground_tags")
    text = "a <REG>x</REG><CLS>normal b <REG>y</REG><CLS>normal</CLS><ANT><BBX>1,2,3,4</BBX></ANT>"
    offset = tags.class_offset(text, ask("grounded_vqa"))
    assert tags.decode(text, ask("grounded_vqa")).label == "normal"
    assert offset == text.rindex("<CLS>") + 5
    assert tags.class_offset("a <REG>x</REG> <CLS>normal</CLS>", ask("grounded_vqa")) is None
