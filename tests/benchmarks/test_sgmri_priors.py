"""The controls of SGMRI-VQA without images."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import DataError
from benchmarks.schema import Answer
from benchmarks.sgmri_priors import CONTROLS, fit
from tests.eval.sgmri_cases import FRAMES, HEIGHT, WIDTH, boxes, closed, record


def resized(asked, frames, width=WIDTH, height=HEIGHT):
    image = msgspec.structs.replace(asked.images[0], width=width, height=height)
    return msgspec.structs.replace(
        asked, images=tuple(msgspec.structs.replace(image, frame=n + 1) for n in range(frames))
    )


def located(number, place, xyxy, question="Where is the finding?", text="Left.", label="Edema"):
    return record(number, text=text, target=boxes((place, xyxy), label=label), question=question)


TRAIN = [
    closed(0, "Yes", question="Is there a mass?"),
    closed(1, "Yes", question="Is there a mass?"),
    closed(2, "No", question="Is there a cyst?"),
    closed(3, "(B)", "image_detection", answer_type="single_choice"),
    located(4, 1, (10.0, 10.0, 20.0, 20.0)),
    located(5, 1, (12.0, 10.0, 24.0, 22.0)),
    located(6, 4, (40.0, 40.0, 46.0, 44.0), question="Where is the tear?", text="Medial.", label="Tear"),
]


def test_the_majority_is_that_of_task_and_answer_type():
    priors = fit(TRAIN)
    assert priors.answer(closed("x", "No", question="Is there a cyst?").ask(), "majority").text == "Yes"
    choice = closed("x", "(A)", "image_detection", answer_type="single_choice").ask()
    assert priors.answer(choice, "majority").text == "(B)"
    other = closed("x", "(A)", "image_detection", answer_type="multiple_choice").ask()
    assert priors.answer(other, "majority").text == "Yes"


def test_prompt_only_takes_the_answer_of_the_same_question_however_it_is_spaced():
    priors = fit(TRAIN)
    assert priors.answer(closed("x", "Yes", question="is there  a CYST?").ask(), "prompt_only").text == "No"
    assert priors.answer(closed("x", "Yes", question="Is there a tear?").ask(), "prompt_only").text == "Yes"


def test_boxes_are_medians_on_the_most_frequent_part_of_the_volume():
    priors = fit(TRAIN)
    answer = priors.answer(record("x").ask(), "majority")
    assert answer.boxes == boxes((1, (12.0, 10.0, 24.0, 22.0)))
    named = priors.answer(record("x", question="Where is the tear?").ask(), "prompt_only")
    assert (named.text, named.boxes) == ("Medial.", boxes((4, (40.0, 40.0, 46.0, 44.0)), label="Tear"))


def test_boxes_follow_the_size_of_the_image_and_the_length_of_the_volume():
    ask = resized(record("x"), 2 * FRAMES, 2 * WIDTH, 3 * HEIGHT).ask()
    (box,) = fit(TRAIN).answer(ask, "majority").boxes
    assert (box.image, box.xyxy) == (2, (24.0, 30.0, 48.0, 66.0))
    (image,) = fit([record(0, "image_localization")]).answer(record("x", "image_localization").ask(), "majority").boxes
    assert image.image == 0


def test_ties_go_to_the_first_of_the_alphabet_and_the_first_part():
    train = [located(0, 4, (1.0, 1.0, 2.0, 2.0), text="Right."), located(1, 0, (1.0, 1.0, 2.0, 2.0), text="Left.")]
    answer = fit(train).answer(record("x").ask(), "majority")
    assert (answer.text, answer.boxes[0].image) == ("Left.", 0)
    assert fit(train[::-1]).answer(record("x").ask(), "majority") == answer


def test_what_train_does_not_have_is_refused():
    with pytest.raises(DataError, match="no record of the task volume_counting"):
        fit(TRAIN).answer(closed("x", "3", "volume_counting").ask(), "majority")
    with pytest.raises(DataError, match="no box of the task volume_localization"):
        fit([record(0, target=())]).answer(record("x").ask(), "majority")
    with pytest.raises(DataError, match="'coin' is not known"):
        fit(TRAIN).answer(TRAIN[0].ask(), "coin")


@given(
    st.lists(
        st.tuples(
            st.integers(1, 40), st.integers(0, 39), st.tuples(*[st.floats(-0.2, 1.2)] * 2), st.floats(0.001, 0.1)
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 60),
    st.tuples(st.integers(1, 400), st.integers(1, 400)),
    st.sampled_from(CONTROLS),
)
@settings(deadline=None)
def test_every_box_is_a_box_inside_its_frame(train, frames, size, control):
    known = []
    for number, (length, place, (x, y), side) in enumerate(train):
        asked = resized(record(number, target=()), length)
        xyxy = (x * WIDTH, y * HEIGHT, (x + side) * WIDTH, (y + side) * HEIGHT)
        target = Answer(text="Left.", boxes=boxes((place % length, xyxy)))
        known.append(msgspec.structs.replace(asked, target=target))
    (box,) = fit(known).answer(resized(record("x", target=()), frames, *size).ask(), control).boxes
    x1, y1, x2, y2 = box.xyxy
    assert 0 <= box.image < frames
    assert 0 <= x1 < x2 <= size[0]
    assert 0 <= y1 < y2 <= size[1]
    assert all(value == int(value) for value in box.xyxy)
