"""SGMRI-VQA through `evaluate`, checkpoint selection, tables and notes; means over rows in general."""

import numpy as np
import pytest

from benchmarks.dataset import load_info
from eval.__main__ import main
from eval.evaluate import evaluate
from eval.measure import make_sample, measure
from eval.metrics import common_values, formulas, row_columns
from eval.run import load_runs
from eval.schema_scores import RowResult
from eval.scorer import ScoredRows
from eval.selection import select
from tests.eval.cases import write_data, write_run
from tests.eval.sgmri_cases import HERE, THERE, answered, boxes, closed, invalid, perfect, record

CAPTION = "The volume shows a small bright lesion."
RECORDS = [
    closed(0, "Yes", group="a"),
    closed(1, "No", group="b"),
    closed(2, "edema", answer_type="open_ended", group="a", label=None),
    closed(3, "edema", "image_diagnosis", answer_type="open_ended", group="b", label=None),
    record(4, group="a"),
    record(5, group="b", organ="knee"),
    record(6, "volume_captioning", CAPTION, answer_type="open_ended", group="c", target=boxes((1, HERE), (1, HERE))),
]


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data", RECORDS, benchmark="sgmri")


@pytest.fixture
def folders(tmp_path, data):
    rows = [perfect(each) for each in RECORDS]
    worse = [*rows[:1], answered(RECORDS[1], "Yes"), *rows[2:5], answered(RECORDS[5], given=boxes((1, THERE))), rows[6]]
    return [write_run(tmp_path / n, data, r, codec="sgmri_json") for n, r in (("best", rows), ("worse", worse))]


def test_a_result_has_each_metric_where_it_is_asked(folders):
    result = evaluate(load_runs(folders), profiles=("corrected",), resamples=100)
    best = {(m.task, m.metric): m for m in result.systems[0].metrics}
    assert {task for task, name in best if name == "a_score"} == {"image_detection"}
    assert {task for task, name in best if name == "v_score"} == {"volume_localization", "volume_captioning"}
    assert best["image_detection", "a_score"].n_records == 2
    assert (best["image_detection", "balanced_accuracy"].value, best["volume_captioning", "ar_score"].value) == (
        1.0,
        1.0,
    )
    assert "2 open-ended keys outside localization and captioning are in no A-Score" in result.notes
    assert "1 target boxes are left out: repeated, or nothing of them lies inside the image" in result.notes
    found = {(c.task, c.metric): c.difference for c in result.comparisons}
    assert found["volume_localization", "v_score"] == found["image_detection", "a_score"] == 0.5
    strata = {(s.key, s.stratum, s.metric.task, s.metric.metric): s.metric.value for s in result.systems[1].strata}
    assert strata["organ", "brain", "volume_localization", "v_score"] == 1.0
    assert strata["organ", "knee", "volume_localization", "v_score"] == 0.0


def test_tables_name_the_scores(capsys, folders, tmp_path):
    arguments = [*map(str, folders), "--profile", "corrected", "--resamples", "100", "--html", str(tmp_path / "r.html")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for head in ("A-Score", "V-Score", "box F1@.5", "frame F1", "AR-Score", "BLEU-4", "V labels"):
        assert head in out
    page = (tmp_path / "r.html").read_text()
    assert all(head in page for head in ("A-Score", "V-Score", "AR-Score", "extra boxes are free"))


def selected(folder, data, rows, records=RECORDS):
    assert load_info(data).benchmark == "sgmri"
    (run,) = load_runs([write_run(folder, data, rows, codec="sgmri_json")])
    return select(run, "corrected")[0]


def test_selection_is_the_mean_over_tasks_of_their_own_score(tmp_path, data):
    assert selected(tmp_path / "best", data, [perfect(each) for each in RECORDS]) == 1.0
    assert selected(tmp_path / "none", data, [invalid(each) for each in RECORDS]) == 0.0
    # Detection half right, localization right, captioning not; diagnosis is open-ended and has no score.
    rows = [perfect(each) for each in RECORDS]
    rows[1], rows[6] = answered(RECORDS[1], "Yes"), answered(RECORDS[6], "")
    assert selected(tmp_path / "mixed", data, rows) == pytest.approx((0.5 + 1 + 0) / 3)
    # Boxes of captions do not choose checkpoints.
    rows = [*(perfect(each) for each in RECORDS[:6]), answered(RECORDS[6], given=())]
    assert selected(tmp_path / "caption", data, rows) == 1.0


def rows_of(values):
    return [
        RowResult(id=str(i), task="t", group=f"g{i % 3}", valid=True, values={} if value is None else {"x": value})
        for i, value in enumerate(values)
    ]


def test_a_mean_over_rows_rests_on_the_rows_that_have_the_value():
    rows = tuple(rows_of([1.0, None, 0.25, None, 0.25]))
    records = [record(row.id, group=row.group) for row in rows]
    sample = make_sample(records, {"t": ()}, "exact_match", resamples=100, seed=0)
    (metric,) = [m for m in measure(ScoredRows(strict=rows, tolerant=rows), sample) if m.metric == "x"]
    assert (metric.value, metric.tolerant, metric.n_records, metric.n_groups) == (0.5, 0.5, 3, 3)
    assert metric.low is not None
    assert metric.low <= 0.5 <= metric.high


def test_a_metric_that_tolerant_reading_lacks_has_no_tolerant_value():
    rows, other = tuple(rows_of([1.0, 0.0])), tuple(rows_of([None, None]))
    records = [record(row.id, group=row.group) for row in rows]
    sample = make_sample(records, {"t": ()}, "exact_match", resamples=100, seed=0)
    (metric,) = [m for m in measure(ScoredRows(strict=rows, tolerant=other), sample) if m.metric == "x"]
    assert (metric.value, metric.tolerant) == (0.5, None)


def test_paired_means_rest_on_rows_that_have_both():
    first, second = row_columns(rows_of([1.0, None, 0.5, 0.0]), ()), row_columns(rows_of([0.5, 1.0, None, 0.0]), ())
    pair = common_values(first, second)
    for columns, expected in zip(pair, (0.5, 0.25), strict=True):
        totals = {name: np.array([column.sum()]) for name, column in columns.items()}
        assert formulas(columns, (), "exact_match")["x"](totals)[0] == expected
    alone = common_values(first, row_columns(rows_of([None] * 4), ()))
    assert all("x" not in formulas(columns, (), "exact_match") for columns in alone)
    assert common_values(first, first)[0].keys() == first.keys()
