"""Prompt templates: what is shown, user files and their mistakes, control tokens in data."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schema import Ask, Image
from collators.prompts import BUILT_IN, Template, breakable, describe_images, load_template, neutralise
from models.tiny import SPECIAL
from recipes.errors import RecipeError
from recipes.inputs import Canvas, Prompt, TemplateName
from tests.collators.samples import PIECES

texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


IMAGE = Image(path="a", width=9, height=9)


def ask(question="Is it hot?", task="vqa", images=(IMAGE,), choices=()):
    return Ask(task=task, images=images, question=question, choices=choices)


def views(*names):
    return tuple(Image(path=name, width=9, height=9, view=name) for name in names)


def shown(messages):
    return "".join(part.get("text", "") for message in messages for part in message["content"])


@given(texts)
def test_neutral_text_holds_no_control_token(text):
    result = neutralise(text, SPECIAL)
    assert not any(token in result for token in SPECIAL)
    assert neutralise(result, SPECIAL) == result


@given(texts)
def test_neutralising_only_adds_blanks_and_leaves_harmless_text_alone(text):
    result = neutralise(text, SPECIAL)
    assert result.replace(" ", "") == text.replace(" ", "")
    if not any(token in text for token in SPECIAL):
        assert result == text


def test_a_token_that_appears_by_breaking_another_is_broken_too():
    assert neutralise("<<a>a>", ("<a>",)) == "<< a>a>"
    assert "ab" not in neutralise("aab", ("aa", "ab"))


@pytest.mark.parametrize("token", [" <a>", "a b", "\n<x", "▁ab", "<a> "])
def test_tokens_with_blanks_are_broken_too_and_breaking_ends(token):
    assert token not in neutralise(f"x{token}{token}", (token,))


def test_blanks_and_single_characters_are_text():
    """Gemma's tokenizer adds runs of blanks and line breaks; breaking one of these would never end."""
    assert [token for token in ("\n\n", "▁▁▁", " ", "x", "\t", "<b>", "ab") if breakable(token)] == ["<b>", "ab"]


@settings(max_examples=60)
@given(texts, texts, texts, st.sampled_from(sorted(BUILT_IN)))
def test_no_field_of_a_record_brings_a_control_token_into_a_prompt(question, task, choice, name):
    record = ask(question, task, choices=(choice, choice))
    assert not any(token in shown(BUILT_IN[name].messages(record, SPECIAL)) for token in SPECIAL)


def test_a_token_split_over_two_fields_does_not_close():
    template = Template(system="{task}{question}", user="{task}{question}")
    assert "<|im_end|>" not in shown(template.messages(ask("end|>", task="<|im_"), SPECIAL))


def test_braces_and_percent_signs_in_data_are_only_text():
    text = shown(BUILT_IN["plain"].messages(ask("{task} {0} %s {{x}}"), SPECIAL))
    assert text == "{task} {0} %s {{x}}"


def test_images_come_before_the_text_in_the_user_turn():
    messages = BUILT_IN["scintiground"].messages(ask(images=views("ANT", "POST")), SPECIAL)
    assert [message["role"] for message in messages] == ["system", "user"]
    assert [part["type"] for part in messages[1]["content"]] == ["image", "image", "text"]
    assert messages[1]["content"][-1]["text"] == (
        "ANT is the first image and PST is the second image. Task type: vqa. Is it hot?"
    )


def test_an_empty_system_text_gives_no_system_turn():
    assert [message["role"] for message in BUILT_IN["plain"].messages(ask(), SPECIAL)] == ["user"]


def test_the_scintiground_system_text_shows_literal_json():
    text = shown(BUILT_IN["scintiground"].messages(ask(), SPECIAL))
    assert 'grounding: {"task","region","boxes"}' in text
    assert "{{" not in text


def test_choices_are_listed():
    assert "one of: yes; no. " in shown(BUILT_IN["choices"].messages(ask(choices=("yes", "no")), SPECIAL))


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (views("ANT"), "The provided image is ANT."),
        (views("POST"), "The provided image is POST."),
        (views("POST", "ANT"), "PST is the first image and ANT is the second image."),
        ((Image(path="a", width=9, height=9),), ""),
        (
            tuple(Image(path=f"{n}", width=9, height=9, frame=n) for n in (3, 7)),
            "The images are frames 3, 7, in this order.",
        ),
        ((Image(path="a", width=9, height=9, frame=1), Image(path="b", width=9, height=9)), ""),
        ((), ""),
    ],
    ids=["one view", "posterior alone", "two views", "no view", "frames", "a frame missing", "no image"],
)
def test_the_sentence_on_images(images, sentence):
    assert describe_images(ask(images=images)) == sentence


def test_a_users_file_is_read_and_takes_the_place_of_the_named_template(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text('system: "Reply briefly."\nuser: "{question} Use {{}}."\n')
    template = load_template(Prompt(template="scintiground", file=str(path)))
    assert shown(template.messages(ask("Hot?"), SPECIAL)) == "Reply briefly.Hot? Use {}."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("user: [", "not YAML"),
        ("- user", "a prompt file has the texts `user`"),
        ("system: x", "a prompt file has the texts `user`"),
        ("user: 3", "a prompt file has the texts `user`"),
        ("user: a\nsystm: b", "a prompt file has the texts `user`"),
        ('user: "{question"', "unbalanced braces"),
        ('user: "{frage}"', "unknown field {frage}"),
        ('user: "{}"', "unknown field {}"),
        ('user: "{question}"\nsystem: "{0}"', "unknown field {0}"),
    ],
)
def test_bad_prompt_files(tmp_path, content, message):
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RecipeError) as raised:
        load_template(Prompt(file=str(path)))
    assert message in raised.value.message
    assert raised.value.where
    assert raised.value.fix


def test_recipes_know_every_template_and_no_other():
    assert set(get_args(TemplateName)) == set(BUILT_IN)
    assert all(load_template(Prompt(template=name)) is BUILT_IN[name] for name in BUILT_IN)


def on_canvas(template, *views, **canvas):
    images = tuple(Image(path=f"{n}", width=256, height=1024, view=view) for n, view in enumerate(views))
    asked = Ask(task="vqa", images=images, question="Hot?", choices=())
    return BUILT_IN[template].text(asked, Canvas(size=224, **canvas), ())


def test_the_published_canvas_prompt_is_word_for_word_with_its_leading_blank():
    """Source: scintiground.md, section 4: `<image> ` and the text."""
    pair = on_canvas("scintiground_canvas_paper", "ANT", "POST")
    assert pair == " ANT is the left panel and POST is the right panel. Task type: vqa. Hot?"
    assert on_canvas("scintiground_canvas_paper", "POST") == " Task type: vqa. Hot?"
    assert on_canvas("scintiground_canvas", "ANT", "POST") == pair.strip()


@pytest.mark.parametrize(
    ("views", "canvas", "said"),
    [
        (("ANT", "POST"), {"arrange": "stacked"}, "ANT is the upper panel and POST is the lower panel."),
        (("POST", "ANT"), {"order": ("ANT", "POST")}, "ANT is the left panel and POST is the right panel."),
        (
            ("POST",),
            {"order": ("ANT", "POST"), "missing": "black"},
            "ANT is the left panel and POST is the right panel. There is no ANT image: its panel is black.",
        ),
        (("A", "B", "C"), {}, "The panels from left to right are A, B, C."),
        (("A", "B", "C"), {"arrange": "stacked"}, "The panels from top to bottom are A, B, C."),
        ((None, None), {}, ""),
    ],
)
def test_a_canvas_is_described_as_it_is_laid_out(views, canvas, said):
    assert on_canvas("scintiground_canvas", *views, **canvas) == f"{said} Task type: vqa. Hot?".strip()


def test_a_system_text_comes_before_the_prompt_of_a_canvas():
    template = Template(system="Be brief.", user="{question}")
    asked = Ask(task="vqa", images=(Image(path="a", width=4, height=4),), question="Hot?", choices=())
    assert template.text(asked, Canvas(size=224), ()) == "Be brief. Hot?"
