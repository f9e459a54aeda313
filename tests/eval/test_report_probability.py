"""The report shows probabilities and thresholds, drawn to scale and escaped."""

import re

import msgspec
import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.evaluate import evaluate
from eval.probability_metrics import reliability
from eval.report import render_report
from eval.report_curves import HEIGHT, LEFT, SIDE, TOP, WIDTH, charts, place
from eval.report_probability import probability_tables, task_charts
from eval.run import load_runs
from eval.schema_probability import Probability
from eval.schema_scores import RowResult
from eval.threshold_match import match_validation
from tests.eval.cases import write_run
from tests.eval.pages import Page, check_safe
from tests.eval.probability_cases import SYSTEM, answers, make_records, write_folders
from tests.eval.test_probability_metrics import slow


@pytest.fixture
def scored(tmp_path):
    """Result and runs of a system with thresholds, and of a control without."""
    records = make_records()
    data, test, val = write_folders(tmp_path, records)
    for view in ("ANT", "POST"):
        PIL.Image.new("L", (64, 128), 60).save(data / f"{view}.png")
    blank = write_run(
        tmp_path / "blank", data, answers(records, "test", skill=0.0), name="<b>blank", control="blank_image", **SYSTEM
    )
    runs = load_runs([test, blank])
    validation = match_validation(runs, [val])
    return evaluate(runs, profiles=["corrected"], resamples=100, validation=validation), runs


def test_page_shows_tables_charts_and_thresholds(scored):
    result, runs = scored
    page = Page(render_report(result, runs))
    check_safe(page)
    text = re.sub(r"\s+", " ", page.text)
    for words in (
        "Answers as probabilities",
        "vqa: P(yes)",
        "grounded_vqa: P(abnormal)",
        "8 of 8",
        "Thresholds chosen on validation",
        "F1 abnormal (minority)",
        "ROC curve; dashed: chance. Ring: the threshold",
        "Reliability in 15 bins of equal width",
        "(Brier score and ECE: below 0)",
        "Expected calibration error",
        "<b>blank",
    ):
        assert words in text
    for threshold in result.systems[0].thresholds:
        assert f"≥ {threshold.threshold:.4g}, balanced accuracy" in text
    # Three charts per task and system; one ring in two of them where a threshold was chosen.
    assert len(page.with_class("square")) == 3 * 2 * 2
    assert len(page.with_class("ring")) == 2 * 2
    assert {attrs["href"] for tag, attrs in page.tags if tag == "a"} >= {"#probabilities", "#thresholds"}


def test_page_without_label_scores_says_nothing_of_them(scored):
    result, runs = scored
    bare = [msgspec.structs.replace(s, probabilities=[], thresholds=[]) for s in result.systems]
    page = Page(render_report(msgspec.structs.replace(result, systems=bare, comparisons=[]), runs))
    check_safe(page)
    assert "Answers as probabilities" not in page.text
    assert "Thresholds chosen" not in page.text


def test_best_is_the_lowest_error_and_the_highest_rank(scored):
    (table, _) = probability_tables(scored[0])
    values = {name: [row.cells[i].value for row in table.rows] for i, name in enumerate(table.columns)}
    for i, name in enumerate(table.columns):
        wanted = min(values[name]) if name in ("brier", "ece") else max(values[name])
        assert [row.cells[i].best for row in table.rows] == [
            round(value, 3) == round(wanted, 3) for value in values[name]
        ]


def make(pairs):
    rows = [
        RowResult(id=str(i), task="t", group="g", valid=True, label="yes" if y else "no", p_positive=p)
        for i, (p, y) in enumerate(pairs)
    ]
    found = Probability(
        task="t", positive="yes", negative="no", n_records=len(rows), n_scored=len(rows), missing=[],
        at={"prompt": len(rows)}, bins=reliability(rows, "yes"),
    )  # fmt: skip
    return charts(rows, found, None)


def area(points):
    """Area under a curve given in user units, by trapezoids, as a share of the square."""
    x, y = np.array(points).T
    return float(np.trapezoid(TOP + SIDE - y, x)) / SIDE**2


def test_curves_by_hand():
    roc, precision, calibration = make([(0.9, 1), (0.4, 1), (0.4, 0), (0.1, 0)])
    assert roc.points == (place(0, 0), place(0, 0.5), place(0.5, 1), place(1, 1))
    assert precision.points == (place(0, 1), place(0.5, 1), place(0.5, 2 / 3), place(1, 2 / 3))
    assert precision.reference == (place(0, 0.5), place(1, 0.5))
    assert [dot.title for dot in calibration.dots][1] == (
        "P in [0.40, 0.47): 2 records, mean P .400, share of positives .500"
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=40))
def test_area_under_the_drawn_curves_is_the_metric(drawn):
    p, positive = [x / 20 for x, _ in drawn], [y for _, y in drawn]
    found = make(list(zip(p, positive, strict=True)))
    for chart in found:
        for x, y in (*chart.points, *((dot.x, dot.y) for dot in chart.dots)):
            assert LEFT <= x <= LEFT + SIDE < WIDTH
            assert TOP <= y <= TOP + SIDE < HEIGHT
    if all(positive) or not any(positive):
        assert [chart.name for chart in found] == ["reliability"]
        return
    expected = slow(p, positive)
    assert area(found[0].points) == pytest.approx(expected["auroc"], abs=0.01)
    assert area(found[1].points) == pytest.approx(expected["average_precision"], abs=0.01)


def test_long_curves_stay_small():
    rng = np.random.default_rng(0)
    found = make([(float(p), bool(y)) for p, y in zip(rng.random(20_000), rng.random(20_000) < 0.1, strict=True)])
    assert len(found[0].points) < 4 * SIDE * 10


def test_charts_of_a_system_are_by_task(scored):
    entries = task_charts(scored[0].systems[0])
    assert [(entry.task, len(entry.charts)) for entry in entries] == [("vqa", 3), ("grounded_vqa", 3)]
