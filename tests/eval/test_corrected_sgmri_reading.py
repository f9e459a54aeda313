"""Reading closed answers, and taking places out of texts."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collators.codecs.base import Invalid
from eval.corrected_sgmri.places import without_places
from eval.corrected_sgmri.reading import read_letter, read_letters, read_number, read_yes_no

NEITHER, BOTH = Invalid("no_yes_or_no"), Invalid("yes_and_no")
SEVERAL, NONE = Invalid("several_letters"), Invalid("no_letter")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("No.", "No"),
        ("yes", "Yes"),
        ("**Yes**", "Yes"),
        ("The answer is: **No**", "No"),
        ("Yes, there is no doubt.", "Yes"),
        ("I would say yes, nothing is normal here.", "Yes"),
        ("There is no abnormality.", "No"),
        ("No fracture, no effusion", "No"),
        ("Normal study, note the clear lungs", NEITHER),
        ("abnormal", NEITHER),
        ("Eyes", NEITHER),
        ("Diagnosis unknown", NEITHER),
        ("non-contrast", NEITHER),
        ("no-contrast study", NEITHER),
        ("", NEITHER),
        ("yes or no", BOTH),
        ("No, yes", BOTH),
        ("Yes and no", BOTH),
        ("Neither yes nor no", BOTH),
        ("No significant findings, yes I am sure.", BOTH),
    ],
)
def test_yes_and_no_are_whole_words_and_exclude_each_other(text, value):
    assert read_yes_no(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("B", "B"),
        ("b)", "B"),
        ("(b)", "B"),
        ("B. A tear", "B"),
        ("A. Effusion", "A"),
        ("The correct answer is (B).", "B"),
        ("Based on the image, C", "C"),
        ("Answer: **D**", "D"),
        ("The answer is A because of the signal", "A"),
        ("The answer is C given the edema", "C"),
        ("Option C shows it", "C"),
        ("C is correct", "C"),
        ("Between (A) and (C), I choose (C).", "C"),
        ("(A) is likely at first. The answer is (B).", "B"),
        ("It is not (A). It is (C).", "C"),
        ("It isn't (A), it is (C).", "C"),
        ("It is not (A) but (C)", "C"),
        ("(A) is wrong, (B)", "B"),
        ("Neither A nor B, so (C)", "C"),
        ("Rather than (D), (A)", "A"),
        ("A or B", SEVERAL),
        ("Answer: A or B", SEVERAL),
        ("Options A and C.", SEVERAL),
        ("(A), (C)", SEVERAL),
        ("A large lesion is seen", NONE),
        ("The answer is A large mass", NONE),
        ("This is a mass.", NONE),
        ("The image", NONE),
        ("Vitamin D", NONE),
        ("(E)", NONE),
        ("", NONE),
    ],
)
def test_a_letter_is_an_option_in_a_declared_place(text, value):
    assert read_letter(text, "ABCD") == value


def test_options_are_those_of_the_question():
    assert read_letter("(E)", "ABCDE") == "E"
    assert read_letter("(C)", "AB") == NONE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A, C", "AC"),
        ("A and C", "AC"),
        ("(A), (C)", "AC"),
        ("The final answer is: A, C", "AC"),
        ("Options A, B and D are right", "ABD"),
        ("a large lesion: B, D", "BD"),
        ("(A) and (B), but not (C)", "AB"),
        ("A mass is seen: (B)", "B"),
    ],
)
def test_all_letters_of_a_multiple_choice_are_kept(text, value):
    assert read_letters(text, "ABCD") == frozenset(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("There are 3 findings, on frames 7, 8 and 9.", 3),
        ("There are 3 findings, on frame 7.", 3),
        ("Frames 7 and 8 show them. Therefore, the final answer is: **3**", 3),
        ("The final answer is: 3 distinct findings on frame 12.", 3),
        ("I count 12 lesions (4 frontal, 8 parietal) in total", 12),
        ("Frame 7, 3 lesions", 3),
        ("Slice #7 shows two", 2),
        ("Two: [80,70,9,8] and [81,70,9,9]", 2),
        ("three", 3),
        ("none", 0),
        ("There are no abnormal findings.", 0),
        ("-3", Invalid("no_number")),
        ("3.5", Invalid("no_number")),
        ("T1", Invalid("no_number")),
        ("Frame 6: [80,70,9,8]", Invalid("no_number")),
        ("", Invalid("no_number")),
        ("1 or 2", Invalid("several_numbers")),
        ("2-3", Invalid("no_number")),
    ],
)
def test_a_count_is_no_frame_number_and_no_coordinate(text, value):
    assert read_number(text) == value


BOX_FORMS = [
    "<bbx>[60,90,40,22]</bbx>",
    "<bbox>[60.5, 90, 40, 22]<\\bbox>",
    "<|box_start|>(1,2),(30,40)<|box_end|>",
    "bbox(1, 2, 30, 40)",
    "(1,2),(30,40)",
    '{"bbox_2d": [1, 2, 3, 4], "label": "x"}',
    '{"x": 1, "y": 2, "width": 3, "height": 4}',
    "[60, 90.5, 40, 22]",
]
FRAME_FORMS = ["Frame 7: ", "frame 7 ", "on Frames 7-9 ", "FRAMES 3, 4 and 5: ", "slice #7: ", "In slices 3 to 5 ", ""]


@pytest.mark.parametrize("frame", FRAME_FORMS)
@pytest.mark.parametrize("box", BOX_FORMS)
def test_every_form_of_a_place_leaves_the_text(box, frame):
    assert without_places(f"{frame}{box}") == ""
    assert without_places(f"Effusion, {frame}{box}.") == "Effusion."
    assert without_places(f"{frame}{box} medial side").split()[-2:] == ["medial", "side"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Effusion seen on Frame 3, 4 and 5. Cyst on frame 6", "Effusion seen. Cyst"),
        ("In the lateral compartment at <bbx>[60,90,40,22]</bbx>.", "In the lateral compartment."),
        ("Lateral side <bbx>[9,9,9,9]</bbx>, <bbx>[8,8,8,8]</bbx>.", "Lateral side."),
        ("Frame 12: <bbx>[1,2,3,4]</bbx>; Frame 13: <bbx>[1,2,3,4]</bbx>.", ""),
        ("Two masses of 3 mm, T1 and T2", "Two masses of 3 mm, T1 and T2"),
        ("[1,2,3]", "[1,2,3]"),
        ("framework 7", "framework 7"),
    ],
)
def test_words_stay_and_left_over_marks_go(text, kept):
    assert without_places(text) == kept


@given(
    st.text(max_size=80) | st.lists(st.sampled_from([*BOX_FORMS, *FRAME_FORMS, "a", " ", ",", ".", "7"])).map("".join)
)
@settings(deadline=None)
def test_readers_take_any_text(text):
    assert read_yes_no(text) in ("Yes", "No", NEITHER, BOTH)
    assert read_letters(text, "ABCD") == NONE or read_letters(text, "ABCD") <= set("ABCD")
    assert isinstance(read_letter(text, "ABCD"), str | Invalid)
    assert isinstance(read_number(text), int | Invalid)
    assert "<bbx>[60,90,40,22]</bbx>" not in without_places(text)


@pytest.mark.parametrize(
    "unit", ["\n", " ", "no ", "frames 1, ", "{", '{"width"', "(A) or ", "not ", "[1,", "<bbx>", "1 "]
)
def test_endless_outputs_are_read_in_bounded_time(unit):
    text = unit * 8000
    start = time.process_time()
    read_yes_no(text), read_letter(text, "ABCD"), read_number(text)
    # Quadratic time would be minutes.
    assert time.process_time() - start < 20
