"""The table of codecs, the plain codec and the location numbers."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Answer, Ask, Image
from collators.codecs.base import CodecError, Invalid
from collators.codecs.location import box_to_grid, grid_to_text, text_to_grid, to_grid
from collators.codecs.registry import NAMES as ALL
from collators.codecs.registry import get_codec
from recipes.errors import UserError
from recipes.inputs import CANVAS_CODECS, CodecName

NAMES = (
    "scintiground_json",
    "scintiground_class_first",
    "scintiground_tags",
    "scintiground_old_json",
    "sgmri_json",
    "sgmri_answer_first",
    "sgmri_text",
    "bbox_2d",
    "plain",
)
PLAIN = get_codec("plain")
IMAGE = Image(path="a.png", width=9, height=9)
OPEN = Ask(task="vqa", images=(IMAGE,), question="What?")
CLOSED = Ask(task="vqa", images=(IMAGE,), question="Hot?", choices=("Yes", "No"))


def test_recipes_know_every_codec_and_no_other():
    assert set(get_args(CodecName)) == {*NAMES, *CANVAS_CODECS} == set(ALL)


@pytest.mark.parametrize("name", NAMES)
def test_every_codec_is_found_under_its_own_name(name):
    assert get_codec(name).name == name


def test_an_unknown_codec_names_the_nearest_and_lists_all():
    with pytest.raises(UserError, match="did you mean scintiground_json") as raised:
        get_codec("scintiground-json")
    assert all(name in str(raised.value) for name in NAMES)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_plain_gives_back_the_text_without_outer_blanks(text):
    decoded = PLAIN.decode(PLAIN.encode(Answer(text=text), OPEN), OPEN)
    assert decoded == Answer(text=text.strip())


def test_plain_recognises_a_choice_in_any_case_and_spells_it_as_the_record():
    assert PLAIN.decode(" yes\n", CLOSED) == Answer(text="yes", label="Yes")
    assert PLAIN.decode("maybe", CLOSED) == Answer(text="maybe")
    assert PLAIN.encode(Answer(label="No"), CLOSED) == "No"


@pytest.mark.parametrize(
    ("text", "reason"), [("", "empty"), (" \n", "empty"), (None, "not_text"), ("\ud800", "lone_surrogate")]
)
def test_plain_texts_without_an_answer(text, reason):
    assert PLAIN.decode(text, OPEN) == Invalid(reason)


def test_plain_refuses_an_answer_without_words():
    with pytest.raises(CodecError, match="neither text nor label"):
        PLAIN.encode(Answer(), OPEN)


@given(st.floats(0, 1), st.floats(1, 4000))
def test_a_location_number_is_at_most_half_a_step_away(share, size):
    value = share * size
    assert abs(to_grid(value, size) / 1023 * size - value) <= size / 2046 * (1 + 1e-9)


def test_location_numbers_round_halves_to_even_and_stay_on_the_grid():
    assert [to_grid(value, 2046) for value in (1, 3, 5)] == [0, 2, 2]
    assert (to_grid(-5, 10), to_grid(11, 10)) == (0, 1023)


grid = st.integers(0, 1023)


@given(st.tuples(grid, grid, grid, grid).filter(lambda b: b[0] < b[2] and b[1] < b[3]), st.text(max_size=9))
def test_location_codes_are_read_back_from_any_surroundings(box, words):
    assert text_to_grid(words.replace("<", "") + grid_to_text(box) + words) == box


def test_location_codes_are_y_first():
    assert grid_to_text(box_to_grid((0, 512, 256, 1024), (512, 1024))) == "<loc0512><loc0000><loc1023><loc0512>"
