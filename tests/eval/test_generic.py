"""The scorer of people's own data."""

import pytest

from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Box, Image, Record, Source
from collators.codecs.registry import get_codec
from eval.generic import GenericScorer, normalise
from eval.measure import make_sample, measure
from eval.scorer import get_scorer

SCORER = GenericScorer()


def asked(number, *, label=None, text=None, choices=(), boxes=(), **strata):
    return Record(
        id=f"g{number}",
        benchmark="generic",
        split="test",
        task="question",
        group=f"p{number}",
        images=(Image(path="a.png", width=100, height=100), Image(path="b.png", width=100, height=100)),
        question="What is seen?",
        choices=choices,
        target=Answer(text=text, label=label, boxes=tuple(Box(image=i, xyxy=xyxy) for i, xyxy in boxes)),
        strata=strata,
        source=Source(id=f"g{number}", file="own.csv", row=number + 1),
    )


def answered(record, text=None, *, label=None, boxes=()):
    answer = Answer(text=text, label=label, boxes=tuple(Box(image=i, xyxy=xyxy) for i, xyxy in boxes))
    return Prediction(id=record.id, text=text or "", answer=answer)


def metrics(records, predictions):
    scored = SCORER.score(records, predictions, get_codec("plain"))
    sample = make_sample(
        records, {"question": SCORER.labels("question", records)}, SCORER.accuracy, resamples=100, seed=0
    )
    return {m.metric: m for m in measure(scored, sample)}, scored.strict


@pytest.mark.parametrize(
    ("target", "given", "right"),
    [
        ("no", "No.", True),
        ("no", "Normal study, note the clear lungs", False),
        ("no", "yes or no", False),
        ("Pneumonia", "  pneumonia ", True),
        ("ST-elevation", "st elevation", False),
        ("B", "**B**", True),
        ("−", "-", False),
        ("ﬁbrosis", "fibrosis", True),
        ("?", "?", True),
        ("?", "!", False),
    ],
)
def test_whole_answers_are_compared_after_normalisation(target, given, right):
    for record in (asked(1, label=target), asked(1, text=target), asked(1, text=target, choices=(target, "other"))):
        found, rows = metrics([record], [answered(record, given)])
        assert found["exact_match"].value == float(right)
        assert rows[0].class_correct is right


def test_normalisation_is_idempotent():
    for text in ("No.", "?!", "A  b", "„Ja“", ""):
        assert normalise(normalise(text)) == normalise(text)


def test_balanced_accuracy_is_over_the_targets_labels():
    records = [asked(0, label="Cyst"), asked(1, label="cyst."), asked(2, label="Tumour")]
    found, rows = metrics(records, [answered(r, "cyst") for r in records])
    assert found["exact_match"].value == pytest.approx(2 / 3)
    assert found["balanced_accuracy"].value == 0.5
    assert found["majority_share"].value == pytest.approx(2 / 3)
    assert rows[2].label == "tumour"


def test_open_questions_have_no_classes():
    found, _ = metrics([asked(0, text="two ribs")], [answered(asked(0), "two ribs")])
    assert set(found) == {"exact_match", "valid_rate"}


def test_boxes_are_matched_one_to_one_per_image():
    record = asked(0, boxes=[(0, (0, 0, 10, 10)), (0, (50, 50, 60, 60)), (1, (0, 0, 10, 10))])
    given = [(0, (50, 50, 60, 60)), (0, (0, 0, 10, 10)), (0, (0, 0, 10, 10)), (1, (50, 50, 60, 60))]
    found, rows = metrics([record], [answered(record, boxes=given)])
    assert rows[0].ious == (1.0, 1.0, 0.0)
    assert rows[0].extra_boxes == 1
    assert found["mean_iou"].value == found["iou_at_0.5"].value == 2 / 4


def test_invalid_outputs_score_zero_and_are_tolerated_only_if_readable():
    record = asked(0, label="no", boxes=[(0, (0, 0, 10, 10))])
    row = Prediction(id=record.id, text="", invalid="empty")
    found, rows = metrics([record], [row])
    assert (rows[0].valid, rows[0].tolerant_valid, rows[0].reason) == (False, False, "empty")
    assert found["exact_match"].value == found["mean_iou"].value == found["valid_rate"].value == 0.0


def test_box_on_an_image_that_is_not_there_is_invalid():
    record = asked(0, boxes=[(0, (0, 0, 10, 10))])
    _, rows = metrics([record], [answered(record, boxes=[(7, (0, 0, 10, 10))])])
    assert rows[0].reason == "image_not_shown"


def test_identifiers_are_not_strata():
    records = [asked(i, label="no", organ="rib" if i % 2 else "spine", file=f"f{i}") for i in range(40)]
    assert SCORER.strata(records) == ("organ",)


def test_only_scintiground_has_its_own_scorer():
    assert isinstance(get_scorer("my-data"), GenericScorer)
    assert not isinstance(get_scorer("scintiground"), GenericScorer)
