"""The published AR-Score: stripping, fallbacks, weights."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.sgmri.marks import TextMarks
from eval.sgmri.text import ar_texts, judge_mark, score_texts, strip_boxes


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("left <bbx>[1,2, 3,4]</bbx> side", "left side"),
        ("left <bbx>[1.5,2,3,4]</bbx>", "left <bbx>[1.5,2,3,4]</bbx>"),
        ("left <bbox>[1,2,3,4]</bbox>", "left <bbox></bbox>"),
        ("left [1,2, 3, 4]", "left"),
        ("left [1 ,2,3,4]", "left [1 ,2,3,4]"),
        ("left [1,2,3]", "left [1,2,3]"),
        ("tear on Frames 3–5, 7: medial", "tear medial"),
        ("tear on Frames 3, 4 and 5", "tear and 5"),
        ("tear on frame 3", "tear on frame 3"),
        ("on Frame 3 a tear", "on Frame 3 a tear"),
        ("tear. Frame 7: lateral. Frame 8 medial", "tear. lateral. Frame 8 medial"),
        ("seen on Frame 3", "seen"),
        ("observed oFrame 1: n Frame 3 and 5 there", "there"),
        ("left , , and . right", "left. right"),
        ("a, , ,b ,. c", "a,b. c"),
        ("a   b \n c .", "a b c"),
        ("tear, . ,", "tear"),
        ("Tear;", "Tear;"),
    ],
)
def test_stripping(text, left):
    assert strip_boxes(text) == left


def test_only_localization_is_stripped():
    text = " Seen on Frame 3: <bbx>[1,2,3,4]</bbx> "
    assert ar_texts(text, text, "captioning") == (text.strip(), text.strip())
    assert ar_texts(text, text, "localization") == ("Seen", "Seen")


@pytest.mark.parametrize(
    ("reply", "own", "mark"),
    [
        (None, None, None),
        ("7,8,6", "10,10,10", 0.7),
        (" 7 , 8.5,5.5\n", "10,10,10", 0.7),
        ("7,8,6", "5,5,5", 1.0),
        ("7,8,6", "10,10", 0.7),
        ("7,8,6", "0,0,0", 0.7),
        ("12,12,12", "0,0,0", 1.0),
        ("12,12,12", "10,10", 1.2),
        ("7,8,6", "ten", 0.0),
        ("7,8,6", "", 0.0),
        ("7,8,6", None, 0.0),
        ("7,8", "ten", None),
        ("7,8,6,9", "10,10,10", None),
        ("7, 8, good", "10,10,10", 0.0),
        ("", "10,10,10", 0.0),
    ],
)
def test_the_judges_part(reply, own, mark):
    found = judge_mark(TextMarks(judge_reply=reply, judge_reply_on_reference=own))
    assert found == (None if mark is None else pytest.approx(mark))


TEXT = "a small tear of the medial meniscus"


@pytest.mark.parametrize(
    ("marks", "value"),
    [
        (TextMarks(judge_reply="5,5,5", judge_reply_on_reference="10,10,10", bertscore_f1=-0.5), 0.2 + 0.2 * 1.5),
        (TextMarks(judge_reply="5,5,5", judge_reply_on_reference="10,10,10"), 0.2 + 0.6),
        (TextMarks(bertscore_f1=-0.5), 0.5),
        (TextMarks(judge_reply="5,5"), 1.0),
        (TextMarks(judge_reply="failed"), 0.6),
    ],
    ids=["all parts", "no BERTScore", "no judge", "two marks", "words"],
)
def test_text_metrics_share_what_the_judge_leaves(marks, value):
    assert score_texts(TEXT, TEXT, marks).value == pytest.approx(value)


def test_an_empty_candidate_earns_nothing_whatever_the_judge_says():
    assert score_texts(
        "", TEXT, TextMarks(judge_reply="9,9,9", judge_reply_on_reference="9,9,9", bertscore_f1=1.0)
    ) == (
        0.0,
        None,
        None,
        None,
        None,
    )


def test_bleu_keeps_punctuation_and_rouge_stems():
    short = score_texts("tears", "Tear.")
    assert (short.bleu4, short.rouge_l) == (0.0, 1.0)


words = st.lists(st.sampled_from(["small", "tear", "medial", "meniscus", "edema", "seen"]), min_size=4, max_size=9).map(
    " ".join
)


@given(words, words)
@settings(deadline=None, max_examples=50)
def test_without_marks_the_score_is_a_fraction_and_full_for_the_reference(candidate, reference):
    found = score_texts(candidate, reference)
    assert 0.0 <= found.value <= 1.0
    assert score_texts(reference, reference).value == pytest.approx(1.0)


@given(st.text(max_size=40))
@settings(deadline=None)
def test_stripping_leaves_no_blank_or_comma_at_the_end(text):
    left = strip_boxes(text)
    assert left == left.rstrip(",. ")
    assert len(left) <= len(text)
