"""The bootstrap on sums equals a slow one that repeats rows."""

import math

import numpy as np
import pytest

from eval.intervals import draw_groups, percentile_interval, ratio, two_sided_p
from eval.measure import compare, make_sample, measure, measure_strata
from eval.schema import ManifestSummary, System
from eval.schema_scores import RowResult
from eval.scorer import ScoredRows
from tests.eval.cases import record

LABELS = {"vqa": ("yes", "no"), "grounded_vqa": ("abnormal", "normal")}


def make_rows(seed, groups=7, count=40):
    """Random scored rows of both tasks, with records to match."""
    rng = np.random.default_rng(seed)
    records, rows = [], []
    for number in range(count):
        task = ("vqa", "grounded_vqa")[number % 2]
        label = LABELS[task][int(rng.random() < 0.7)]
        valid = bool(rng.random() < 0.85)
        predicted = LABELS[task][int(rng.random() < 0.6)] if valid else None
        ious = () if task == "vqa" else tuple((rng.random(1 + number % 3 // 2) * valid).tolist())
        strict = all(v >= 0.5 for v in ious) and predicted == label if ious else None
        group = f"p{int(np.random.default_rng(number).integers(groups))}"
        records.append(record(number, task, label, group=group, views=("ANT", "POST")))
        rows.append(
            RowResult(
                id=f"r{number}",
                task=task,
                group=group,
                valid=valid,
                reason=None if valid else "invalid_json",
                label=label,
                predicted=predicted,
                class_correct=predicted == label,
                ious=ious,
                strict=strict,
                region_correct=None if strict is None else valid,
                strict_with_region=strict,
            )
        )
    return records, rows


def slow_metric(name, rows, labels):
    """A metric from a list of rows, straight from its definition."""
    boxes = [value for row in rows for value in row.ious]
    box_rows = [row for row in rows if row.ious]
    if name == "accuracy":
        return np.mean([row.class_correct for row in rows])
    if name == "mean_iou":
        return np.mean(boxes)
    if name == "mean_iou_row":
        return np.mean([np.mean(row.ious) for row in box_rows])
    if name == "iou_at_0.5":
        return np.mean([value >= 0.5 for value in boxes])
    if name in {"strict", "strict_with_region"}:
        return np.mean([getattr(row, name) for row in box_rows])
    if name == "valid_rate":
        return np.mean([row.valid for row in rows])
    recalls, f1s = [], []
    for label in labels:
        support = [row for row in rows if row.label == label]
        if not support:
            return math.nan
        hits = sum(row.predicted == label for row in support)
        called = sum(row.predicted == label for row in rows)
        recalls.append(hits / len(support))
        precision = hits / called if called else 0.0
        recall = hits / len(support)
        f1s.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    return np.mean(recalls if name == "balanced_accuracy" else f1s)


def slow_interval(name, rows, labels, groups, draws):
    values = []
    for draw in draws:
        repeated = [
            row
            for group, times in zip(groups, draw, strict=True)
            for _ in range(int(times))
            for row in rows
            if row.group == group
        ]
        values.append(slow_metric(name, repeated, labels) if repeated else math.nan)
    defined = [value for value in values if not math.isnan(value)]
    return np.quantile(defined, [0.025, 0.975]), len(values) - len(defined)


def test_intervals_equal_a_slow_reference():
    records, rows = make_rows(0)
    sample = make_sample(records, LABELS, "accuracy", resamples=100, seed=5)
    groups = sorted({r.group for r in records})
    metrics = measure(ScoredRows(strict=tuple(rows), tolerant=tuple(rows)), sample)
    checked = 0
    for metric in metrics:
        if ":" in metric.metric or metric.metric in {
            "majority_share",
            "accuracy_gain",
            "mean_iou_group",
            "iou_sweep_mean",
        }:
            continue
        if metric.metric == "region_accuracy" or (metric.metric.startswith("iou_at") and metric.metric != "iou_at_0.5"):
            continue
        part = [row for row in rows if row.task == metric.task]
        labels = LABELS[metric.task]
        (low, high), undefined = slow_interval(metric.metric, part, labels, groups, sample.draws)
        assert metric.value == pytest.approx(slow_metric(metric.metric, part, labels))
        assert (metric.low, metric.high) == pytest.approx((low, high))
        assert metric.undefined_resamples == undefined
        checked += 1
    assert checked == 4 + 9


def test_group_mean_counts_every_group_once():
    records, rows = make_rows(1)
    sample = make_sample(records, LABELS, "accuracy", resamples=100, seed=5)
    metrics = {(m.task, m.metric): m for m in measure(ScoredRows(strict=tuple(rows), tolerant=tuple(rows)), sample)}
    by_group: dict[str, list[float]] = {}
    for row in rows:
        if row.ious:
            by_group.setdefault(row.group, []).append(float(np.mean(row.ious)))
    expected = np.mean([np.mean(values) for values in by_group.values()])
    assert metrics["grounded_vqa", "mean_iou_group"].value == pytest.approx(expected)
    assert metrics["grounded_vqa", "mean_iou_group"].n_groups == len(by_group)


def test_draws_hold_every_group_count_and_repeat_with_the_seed():
    draws = draw_groups(9, 300, 3)
    assert draws.shape == (300, 9)
    assert (draws.sum(axis=1) == 9).all()
    assert (draws == draw_groups(9, 300, 3)).all()
    assert (draws != draw_groups(9, 300, 4)).any()
    assert draws.mean() == 1.0


def test_undefined_resamples_are_counted_and_left_out():
    interval = percentile_interval(np.array([math.nan, 0.2, 0.2, math.nan]))
    assert (interval.low, interval.high, interval.undefined) == (0.2, 0.2, 2)
    assert math.isnan(percentile_interval(np.array([math.nan, 0.5])).low)
    assert np.isnan(ratio(np.array([0.0]), np.array([0.0])))[0]


@pytest.mark.parametrize(
    ("differences", "expected"),
    [([0.1] * 99, 0.02), ([-0.1] * 99, 0.02), ([0.0] * 99, 1.0), ([0.1] * 98 + [-0.1], 0.04), ([], None)],
    ids=["above", "below", "equal", "one beyond", "none"],
)
def test_p_counts_replicates_beyond_zero(differences, expected):
    p = two_sided_p(np.array(differences))
    assert (p == pytest.approx(expected)) if expected is not None else math.isnan(p)


def as_system(name, rows):
    manifest = ManifestSummary(
        engine="hf",
        codec="plain",
        encoder_fingerprint=None,
        weights=None,
        weights_hash=None,
        decoding={},
        environment={},
        timing={},
    )
    return System(name=name, folder=name, control=None, encoder_mark="", manifest=manifest, errors=[], rows=rows)


def test_comparison_is_paired_and_antisymmetric():
    records, first = make_rows(0)
    _, other = make_rows(0)
    second = [
        row
        if number % 5
        else RowResult(
            id=row.id,
            task=row.task,
            group=row.group,
            valid=False,
            label=row.label,
            class_correct=False,
            ious=(0.0,) * len(row.ious),
            strict=None if row.strict is None else False,
            region_correct=None if row.strict is None else False,
            strict_with_region=None if row.strict is None else False,
        )
        for number, row in enumerate(other)
    ]
    sample = make_sample(records, LABELS, "accuracy", resamples=200, seed=5)
    there = compare(as_system("a", first), as_system("b", second), sample)
    back = compare(as_system("b", second), as_system("a", first), sample)
    assert [row.metric for row in there] == [row.metric for row in back]
    assert len(there) == 4 + 8 + 2  # the F1 of the rarest class of both tasks
    for one, two in zip(there, back, strict=True):
        assert one.difference == pytest.approx(-two.difference)
        assert (one.low, one.high) == pytest.approx((-two.high, -two.low))
        assert one.p == two.p
    same = compare(as_system("a", first), as_system("a", first), sample)
    assert all((row.difference, row.low, row.high, row.p) == (0.0, 0.0, 0.0, 1.0) for row in same)


def test_comparison_leaves_out_records_that_failed_in_either():
    records, rows = make_rows(0)
    failed = [
        RowResult(id=row.id, task=row.task, group=row.group, valid=False, error="out of memory") if i < 4 else row
        for i, row in enumerate(rows)
    ]
    sample = make_sample(records, LABELS, "accuracy", resamples=100, seed=5)
    for pair in ((rows, failed), (failed, rows)):
        found = compare(as_system("a", pair[0]), as_system("b", pair[1]), sample)
        assert all(row.difference == 0.0 for row in found)
        assert {row.task: row.n_records for row in found if row.metric == "accuracy"} == {"vqa": 18, "grounded_vqa": 18}


def test_strata_split_the_rows():
    records, rows = make_rows(2)
    records = [
        record(i, r.task, r.target.label, group=r.group, label_conflict=str(i % 3 == 0).lower())
        for i, r in enumerate(records)
    ]
    sample = make_sample(records, LABELS, "accuracy", resamples=100, seed=5)
    found = measure_strata(ScoredRows(strict=tuple(rows), tolerant=tuple(rows)), records, ("label_conflict",), sample)
    accuracy = {(row.stratum, row.metric.task): row.metric for row in found if row.metric.metric == "accuracy"}
    assert set(accuracy) == {(value, task) for value in ("true", "false") for task in LABELS}
    inside = [row for i, row in enumerate(rows) if i % 3 == 0 and row.task == "vqa"]
    assert accuracy["true", "vqa"].value == pytest.approx(np.mean([row.class_correct for row in inside]))
    assert accuracy["true", "vqa"].n_records == len(inside)
