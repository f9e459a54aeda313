"""The published A-Score, sentence by sentence, beyond the reference cases."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.sgmri.answers import final_answer, read_letters, read_number, read_yes_no, score_answer, without_thinking


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a\nb</think> Yes <think></think>", "Yes"),
        ("a<think>b</think>c<think>d</think>e", "ace"),
        ("<think>open Yes", "<think>open Yes"),
        ("<THINK>x</THINK>", "<THINK>x</THINK>"),
        ("<think>a<think>b</think>c</think>", "c</think>"),
    ],
)
def test_thinking_goes_with_its_closing_tag_only(text, left):
    assert without_thinking(text) == left


@pytest.mark.parametrize(
    ("text", "qa_type", "cut"),
    [
        ("So: therefore the final answer is: Edema... \nmore", "open_ended", "Edema"),
        ("Therefore, the final answer is:\n\n  (B)\nnext", "single_choice", "(B)"),
        ("Therefore, the final answer is: **Yes.**", "closed_ended", "Yes"),
        ("Therefore, the final answer is: NO, nothing", "closed_ended", "NO"),
        ("Therefore, the final answer is: y", "closed_ended", "y"),
        ("Therefore, the final answer is: 3 on frame 4.", "closed_ended", "3 on frame 4"),
        ("Therefore, the final answer is: A, C.", "multiple_choice", "A"),
        ("Therefore, the final answer is: A, C.", "multi_choice", "A, C"),
        ("Therefore, the final answer is: Edema", "single_choice", "Edema"),
        ("Therefore, the final answer is: a", "single_choice", "a"),
        ("Therefore, the final answer is: E", "single_choice", "E"),
        ("Therefore, the final answer is: Yes. Therefore, the final answer is: No", "closed_ended", "Yes"),
        ("THEREFORE, the final answer is: Yes", "closed_ended", "THEREFORE, the final answer is: Yes"),
        ("Therefore, the final answer is Yes", "closed_ended", "Therefore, the final answer is Yes"),
        ("Therefore, the final answer is:", "closed_ended", "Therefore, the final answer is:"),
        ("Therefore, the final answer is: **", "closed_ended", ""),
    ],
)
def test_the_final_answer_cut(text, qa_type, cut):
    assert final_answer(text, qa_type) == cut


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("YES!", True),
        (" y.", True),
        ("n;", False),
        ("nope, yes", None),
        ("It is so: the answer is:: **no** but yes", False),
        ("My answer is **yes**, not no", True),
        ("the answer is yesterday", True),
        ("the answer is maybe", None),
        ("unknown", False),
        ("Eyes noted", None),
        ("", None),
    ],
)
def test_how_yes_and_no_are_read(text, reading):
    assert read_yes_no(text) is reading


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (" 12 ", 12),
        ("+4", 4),
        ("1_000", 1000),
        ("Therefore the final answer is: **7** of 9", 7),
        ("therefore, the final answer is: about 7 of 9", 9),
        ("frame 3, T2", 3),
        ("No acute\nabnormality", None),
        ("there is no obvious finding", 0),
        ("nothing abnormal", None),
        ("None.", 0),
        ("nonetheless", None),
        ("ZERO", 0),
        ("three", None),
    ],
)
def test_how_numbers_are_read(text, number):
    assert read_number(text) == number


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("(a) and (D), not B", "AD"),
        ("B, d", "BD"),
        ("(E) or E", ""),
        ("It is not (A). It is not (B) or (C). (D)", "D"),
        ("it  is not (A), a tear, so (C)", ""),
        ("It is not A. C", "AC"),
        ("IT IS NOT (A). (C)", "AC"),
        ("A's", "A"),
        ("AB", ""),
    ],
)
def test_how_letters_are_read(text, letters):
    assert read_letters(text) == set(letters)


@pytest.mark.parametrize(
    ("prediction", "key", "qa_type", "value"),
    [
        ("abnormal", "diagnosis", "closed_ended", 1.0),
        ("0", "No abnormality", "closed_ended", 1.0),
        ("No", "3", "closed_ended", 0.0),
        ("3", "3 findings", "closed_ended", 1.0),
        ("FLAIR", "FLAIR", "closed_ended", 0.0),
        ("(C) or (B)", "(B)", "single_choice", 1.0),
        ("Edema", "Edema", "single_choice", 0.0),
        ("(A), (B)", "(A), (C)", "multi_choice", 0.5),
        ("(A)", "none", "multiple_choice", 0.0),
        ("Edema", "Edema", "short", 0.0),
        ("Edema", "Edema", "", 0.0),
    ],
)
def test_the_score_of_one_answer(prediction, key, qa_type, value):
    assert score_answer(prediction, key, qa_type).value == pytest.approx(value)


def test_a_chain_of_thought_is_scored_without_an_encoder():
    assert score_answer("A TEAR, <think>effusion</think>", "x", "chain_of_thought", ["Tear", "Effusion"]).value == 0.5
    assert score_answer("a tear here", "A tear", "chain_of_thought").value == 1.0
    assert score_answer("a tear", "<think>tear</think>", "chain_of_thought").value == 0.0


letters = st.sets(st.sampled_from("ABCD"), min_size=1)


@given(letters, letters)
@settings(deadline=None)
def test_multiple_choice_is_symmetric_and_full_for_equal_sets_only(said, truth):
    texts = [", ".join(f"({letter})" for letter in sorted(chosen)) for chosen in (said, truth)]
    value = score_answer(*texts, "multiple_choice").value
    assert value == pytest.approx(score_answer(*reversed(texts), "multiple_choice").value)
    assert (value == 1.0) == (said == truth)


@given(
    st.text(), st.text(), st.sampled_from(["closed_ended", "single_choice", "multiple_choice", "chain_of_thought", "x"])
)
@settings(deadline=None)
def test_no_text_stops_the_score(prediction, key, qa_type):
    assert 0.0 <= score_answer(final_answer(prediction, qa_type), key, qa_type).value <= 1.0
