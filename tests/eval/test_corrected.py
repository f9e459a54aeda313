"""Each mended fault: what the published scorer makes of an input, and what the corrected profile does."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import DataError
from collators.codecs.registry import get_codec
from collators.codecs.scintiground_official import official_row, official_texts
from eval.corrected.faults import FAULTS
from eval.corrected.rows import check_record, fold_region
from eval.corrected.scorer import ScintiGroundScorer
from eval.corrected.tolerant import read_tolerantly
from eval.measure import make_sample, measure
from eval.scintiground.report import report
from eval.scintiground.scoring import score_row, score_rows
from eval.scintiground.strata import strata, threshold_sweep
from eval.tally import confusion, histogram, invalid_counts
from tests.eval.cases import perfect, predict, record, text_for

SCORER = ScintiGroundScorer()
CODEC = get_codec("scintiground_json")


def corrected(records, predictions):
    """Metric values by (task, metric), and the scored rows."""
    scored = SCORER.score(records, predictions, CODEC)
    labels = {task: SCORER.labels(task, records) for task in dict.fromkeys(r.task for r in records)}
    sample = make_sample(records, labels, "accuracy", resamples=100, seed=0)
    return {(m.task, m.metric): m for m in measure(scored, sample)}, scored.strict


def published(records, predictions):
    rows = [official_row(r) for r in records]
    return score_rows(rows, official_texts(records, predictions, "scintiground_json"))


def test_01_invalid_vqa_output_earns_nothing():
    asked = [record(1, "vqa", "no"), record(2, "vqa", "yes")]
    rows = [predict(asked[0], text_for(asked[0], extra=1)), perfect(asked[1])]
    assert report(published(asked, rows))["vqa"]["accuracy"] == 1.0
    metrics, scored = corrected(asked, rows)
    assert metrics["vqa", "accuracy"].value == 0.5
    assert scored[0].reason == "field_set_mismatch"


def test_02_unanswered_negative_costs_f1():
    asked = [record(1, "vqa", "no"), record(2, "vqa", "no"), record(3, "vqa", "yes")]
    rows = [predict(asked[0], "?"), perfect(asked[1]), perfect(asked[2])]
    assert report(published(asked, rows))["vqa"]["macro_f1"] == 1.0
    metrics, _ = corrected(asked, rows)
    assert metrics["vqa", "f1:no"].value == pytest.approx(2 / 3)
    assert metrics["vqa", "macro_f1"].value == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.parametrize(
    ("views", "boxes", "reason"),
    [
        (("ANT",), {"ANT": [10, 10, 20, 20], "PST": [1, 1, 5, 5]}, "extra_view"),
        (("ANT", "POST"), {"ANT": [10, 10, 20, 20]}, "missing_view"),
        (("ANT",), {"PST": [10, 10, 20, 20]}, "missing_view"),
    ],
    ids=["extra", "missing", "other"],
)
def test_03_exactly_the_asked_views(views, boxes, reason):
    asked = record(1, "grounding", views=views)
    rows = [predict(asked, text_for(asked, by_view=boxes))]
    assert published([asked], rows)[0].valid
    metrics, scored = corrected([asked], rows)
    assert scored[0].reason == reason
    assert metrics["grounding", "iou_at_0.5"].value == 0.0


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"boxes": None}, TypeError), ({"boxes": 7}, TypeError), ({"task": ["grounding"]}, TypeError)],
    ids=["null", "number", "list as task"],
)
def test_04_malformed_output_is_one_invalid_output(fields, error):
    asked = record(1, "grounding")
    rows = [predict(asked, text_for(asked, **fields))]
    with pytest.raises(error):
        published([asked], rows)
    metrics, scored = corrected([asked], rows)
    assert not scored[0].valid
    assert metrics["grounding", "valid_rate"].value == 0.0


def test_06_averages_are_made_of_unrounded_rates():
    asked = [record(i, "vqa", "yes") for i in range(3)] + [record(i, "vqa", "no") for i in range(3, 10)]
    rows = [predict(asked[i], text_for(asked[i], label="no" if i < 1 or i > 3 else "yes")) for i in range(10)]
    exact = (2 / 3 + 6 / 7) / 2
    assert report(published(asked, rows))["vqa"]["balanced_accuracy"] != exact
    metrics, _ = corrected(asked, rows)
    assert metrics["vqa", "balanced_accuracy"].value == pytest.approx(exact, abs=1e-15)


def test_07_absent_class_is_said_with_counts():
    asked = [record(i, "vqa", "no") for i in range(4)]
    metrics, _ = corrected(asked, [perfect(r) for r in asked])
    balanced = metrics["vqa", "balanced_accuracy"]
    assert balanced.value is None
    assert balanced.undefined_resamples == 100
    assert "0 yes, 4 no" in balanced.note
    assert metrics["vqa", "accuracy"].value == 1.0


def test_07_resamples_without_a_class_are_counted():
    asked = [record(0, "vqa", "yes")] + [record(i, "vqa", "no") for i in range(1, 5)]
    metrics, _ = corrected(asked, [perfect(r) for r in asked])
    balanced = metrics["vqa", "balanced_accuracy"]
    # One patient of five is not drawn in (4/5)^5 = 33 % of the resamples.
    assert 20 <= balanced.undefined_resamples <= 46
    assert (balanced.value, balanced.low, balanced.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("region", "correct"), [("left_knee", True), ("left knee", True), ("LEFT_KNEE", True), ("right_knee", False)]
)
def test_08_strict_with_and_without_region(region, correct):
    asked = record(1, "grounding")
    metrics, scored = corrected([asked], [predict(asked, text_for(asked, region=region))])
    assert metrics["grounding", "strict"].value == 1.0
    assert metrics["grounding", "strict_with_region"].value == float(correct)
    assert scored[0].region_correct is correct


def test_09_sweep_leaves_vqa_out_and_applies_validity():
    lesion = record(1, "vqa", "yes")
    lesion = type(lesion)(
        **{name: getattr(lesion, name) for name in lesion.__struct_fields__}
        | {"target": type(lesion.target)(text="A sentence.", label="yes", boxes=record(2, "grounding").target.boxes)}
    )
    asked = [lesion, record(2, "grounding"), record(3, "grounding")]
    invalid = text_for(asked[2], by_view={"ANT": [10.0, 10.0, 20.0, 20.5]})
    rows = [perfect(lesion), perfect(asked[1]), predict(asked[2], invalid)]
    assert threshold_sweep(published(asked, rows))["accuracy_at_0.50"] == pytest.approx(2 / 3, abs=1e-6)
    metrics, _ = corrected(asked, rows)
    assert metrics["grounding", "iou_at_0.5"].value == 0.5
    assert metrics["grounding", "iou_sweep_mean"].value == 0.5
    assert ("vqa", "mean_iou") not in metrics


def test_10_iou_per_box_row_and_patient():
    asked = [
        record(1, "grounding", group="a", views=("ANT", "POST")),
        record(2, "grounding", group="a"),
        record(3, "grounding", group="b"),
    ]
    half = text_for(asked[1], by_view={"ANT": [10, 10, 20, 15]})
    rows = [perfect(asked[0]), predict(asked[1], half), predict(asked[2], half)]
    metrics, _ = corrected(asked, rows)
    assert metrics["grounding", "mean_iou"].value == (1 + 1 + 0.5 + 0.5) / 4
    assert metrics["grounding", "mean_iou_row"].value == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert metrics["grounding", "mean_iou_group"].value == ((1 + 0.5) / 2 + 0.5) / 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"answer": "  "}, "invalid_answer"),
        ({"boxes": [{"view": "ANT", "bbox": [10, 10, 65, 20]}]}, "box_outside_image"),
    ],
    ids=["blank answer", "outside"],
)
def test_11_one_validity_rule(fields, reason):
    asked = record(1, "grounded_vqa", "normal")
    _, scored = corrected([asked], [predict(asked, text_for(asked, **fields))])
    assert scored[0].reason == reason


@pytest.mark.parametrize("label", ["maybe", "Yes", None])
def test_12_illegal_label_is_refused_by_name(label):
    with pytest.raises(DataError, match=r"(?s)class label.*record r1.*target\.label"):
        check_record(record(1, "vqa", label))


def test_13_strata_are_those_that_occur():
    asked = [record(1, "grounding", region="right shoulder")]
    assert strata(published(asked, [perfect(asked[0])]))["label"]["shoulder"]["grounding"]["rows"] == 0
    assert SCORER.strata(asked) == ("view_scope", "region_level", "region")


def test_14_unread_outputs_count():
    asked = [record(1, "grounded_vqa", "normal"), record(2, "grounded_vqa", "abnormal")]
    metrics, _ = corrected(asked, [perfect(asked[0]), predict(asked[1], "nothing")])
    assert metrics["grounded_vqa", "mean_iou"].value == 0.5
    assert metrics["grounded_vqa", "recall:abnormal"].value == 0.0
    assert metrics["grounded_vqa", "mean_iou"].n_records == 2


@pytest.mark.parametrize("form", ["```json\n@\n```", "Answer: @ Done.", "\ufeff@", "@\n{}", "{x} @"])
def test_15_tolerant_column_reads_past_the_surroundings(form):
    asked = record(1, "grounded_vqa", "abnormal")
    metrics, scored = corrected([asked], [predict(asked, form.replace("@", text_for(asked)))])
    assert (scored[0].valid, scored[0].tolerant_valid) == (False, True)
    assert (metrics["grounded_vqa", "strict"].value, metrics["grounded_vqa", "strict"].tolerant) == (0.0, 1.0)


def test_15_tolerance_does_not_mend_the_answer_itself():
    asked = record(1, "vqa", "no")
    assert read_tolerantly('```{"task":"vqa","answer":"x","class":"NO"}```', CODEC, asked.ask()) is None
    assert read_tolerantly("no", CODEC, asked.ask()) is None


@given(st.text(alphabet='{}[]":,`a1 \\\ufeff', max_size=200))
@settings(max_examples=300)
def test_tolerant_reading_never_raises(text):
    asked = record(1, "vqa", "no")
    assert read_tolerantly(text, CODEC, asked.ask()) is None


def test_tolerant_reading_survives_deep_nesting():
    assert read_tolerantly('{"a":' * 100_000, CODEC, record(1, "vqa", "no").ask()) is None


def test_16_and_28_majority_share_stands_beside_accuracy():
    asked = [record(i, "vqa", "no" if i else "yes") for i in range(10)]
    rows = [predict(r, text_for(r, label="no")) for r in asked]
    metrics, _ = corrected(asked, rows)
    assert metrics["vqa", "accuracy"].value == metrics["vqa", "majority_share"].value == 0.9
    assert metrics["vqa", "accuracy_gain"].value == 0.0
    assert metrics["vqa", "balanced_accuracy"].value == 0.5


def test_every_fault_is_named_once():
    assert {fault.number for fault in FAULTS} == {*range(1, 20), 27, 28} - {20}
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)


def test_errors_of_ours_are_in_no_score():
    asked = [record(1, "vqa", "no"), record(2, "vqa", "yes")]
    failed = type(perfect(asked[0]))(id="r1", error="out of memory")
    metrics, scored = corrected(asked, [failed, perfect(asked[1])])
    assert metrics["vqa", "accuracy"].value == 1.0
    assert metrics["vqa", "accuracy"].n_records == 1
    assert scored[0].error == "out of memory"
    assert invalid_counts(scored) == []


def test_truncated_is_its_own_reason():
    asked = record(1, "grounding")
    _, scored = corrected([asked], [predict(asked, text_for(asked)[:-5], finish="length")])
    assert scored[0].reason == "truncated"


def test_other_codecs_are_scored_alike():
    asked = [record(1, "grounding", views=("ANT", "POST")), record(2, "grounded_vqa", "normal")]
    tags = get_codec("scintiground_tags")
    rows = [predict(r, tags.encode(r.target, r.ask()), codec="scintiground_tags") for r in asked]
    scored = SCORER.score(asked, rows, tags).strict
    assert all(row.valid and row.strict_with_region for row in scored)


@pytest.mark.parametrize("views", [(), ("ANT", "ANT")], ids=["none", "two in one view"])
def test_target_boxes_that_cannot_be_scored_are_refused(views):
    with pytest.raises(DataError, match=r"(?s)exactly one target box.*target\.boxes"):
        check_record(record(1, "grounding", views=views))


def test_unknown_task_is_refused():
    with pytest.raises(DataError, match="task 'report'"):
        check_record(record(1, "report", "yes"))


def test_extremes():
    asked = [
        record(i, task, label, views=("ANT", "POST"))
        for i, (task, label) in enumerate(
            [
                ("vqa", "yes"),
                ("vqa", "no"),
                ("grounding", None),
                ("grounded_vqa", "abnormal"),
                ("grounded_vqa", "normal"),
            ]
        )
    ]
    best, _ = corrected(asked, [perfect(r) for r in asked])
    worst, _ = corrected(asked, [predict(r, "") for r in asked])
    for (task, name), metric in best.items():
        if name in {"majority_share", "accuracy_gain"}:
            continue
        assert metric.value == 1.0, (task, name)
        if not name.startswith("precision"):
            assert worst[task, name].value == 0.0, (task, name)
    assert worst["vqa", "precision:yes"].value is None


def test_counts_for_pictures():
    asked = [
        record(1, "grounded_vqa", "abnormal"),
        record(2, "grounded_vqa", "normal"),
        record(3, "grounded_vqa", "normal"),
    ]
    rows = [
        predict(asked[0], text_for(asked[0], label="normal", by_view={"ANT": [10, 10, 20, 15]})),
        perfect(asked[1]),
        predict(asked[2], "?"),
    ]
    _, scored = corrected(asked, rows)
    matrix = confusion("grounded_vqa", scored, ("abnormal", "normal"))
    assert matrix.predicted == ["abnormal", "normal", "invalid"]
    assert matrix.counts == [[0, 1, 0], [0, 1, 1]]
    bins = histogram("grounded_vqa", scored)
    assert (bins.counts[0], bins.counts[10], bins.counts[19], sum(bins.counts), bins.invalid) == (1, 1, 1, 3, 1)
    assert [(c.task, c.reason, c.count) for c in invalid_counts(scored)] == [("grounded_vqa", "invalid_json", 1)]


def test_region_spelling():
    assert fold_region(" Left_Knee ") == fold_region("left  knee") != fold_region("right knee")
    assert fold_region(None) == ""


label_text = st.sampled_from(["yes", "no", "normal", "abnormal", "NO", "", None, 1])
coordinate = st.integers(-3, 70)
box_list = st.lists(
    st.fixed_dictionaries(
        {"view": st.sampled_from(["ANT", "PST", "POST"]), "bbox": st.lists(coordinate, min_size=3, max_size=5)}
    ),
    max_size=3,
)
payload = st.fixed_dictionaries(
    {"task": st.sampled_from(["vqa", "grounding", "grounded_vqa"])},
    optional={
        "answer": st.sampled_from(["x", "", None]),
        "class": label_text,
        "region": st.sampled_from(["left_knee", "head", "", 3]),
        "boxes": box_list,
    },
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    ("vqa", "yes"),
                    ("vqa", "no"),
                    ("grounding", None),
                    ("grounded_vqa", "normal"),
                    ("grounded_vqa", "abnormal"),
                ]
            ),
            st.booleans(),
            payload,
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_scores_are_fractions_and_do_not_depend_on_the_order(items, random):
    asked, rows = [], []
    for number, ((task, label), right, output, group) in enumerate(items):
        one = record(number, task, label, group=f"p{group}", views=("ANT", "POST") if number % 2 else ("ANT",))
        asked.append(one)
        rows.append(perfect(one) if right else predict(one, json.dumps(output)))
    metrics, _ = corrected(asked, rows)
    order = list(range(len(asked)))
    random.shuffle(order)
    shuffled, _ = corrected([asked[i] for i in order], [rows[i] for i in order])
    assert metrics.keys() == shuffled.keys()
    for key, metric in metrics.items():
        lowest = -1.0 if key[1] == "accuracy_gain" else 0.0
        for name in ("value", "low", "high"):
            value, other = getattr(metric, name), getattr(shuffled[key], name)
            assert value is None or lowest - 1e-12 <= value <= 1.0 + 1e-12
            assert (value is None) == (other is None)
            assert value is None or math.isclose(value, other, abs_tol=1e-12)


def test_published_row_scorer_agrees_on_valid_right_answers():
    asked = record(1, "grounded_vqa", "normal", views=("ANT", "POST"))
    row = score_row(official_row(asked), perfect(asked).text)
    assert (row.valid, row.strict, row.ious) == (True, True, (1.0, 1.0))
