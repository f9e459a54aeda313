"""Metrics of P(positive) equal their definitions, by hand and by slow references."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.intervals import draw_groups
from eval.measure import make_sample
from eval.probability_metrics import BINS, Scored, compare_probabilities, measure_probabilities, reliability
from eval.schema_scores import RowResult
from tests.eval.cases import record
from tests.eval.test_intervals import as_system

PAIRS = {"vqa": ("yes", "no")}


def scored(p, positive, codes=None):
    codes = np.arange(len(p)) if codes is None else np.array(codes)
    return Scored(
        p=np.array(p, dtype=float),
        positive=np.array(positive, dtype=bool),
        codes=codes.astype(np.intp),
        groups=int(codes.max()) + 1 if len(codes) else 1,
    )


def values(p, positive):
    return {name: float(found[0]) for name, found in scored(p, positive).values().items()}


def slow(p, positive):
    """The four metrics from their definitions, over every pair and every threshold."""
    pos = [x for x, y in zip(p, positive, strict=True) if y]
    neg = [x for x, y in zip(p, positive, strict=True) if not y]
    auroc = average = math.nan
    if pos and neg:
        auroc = sum((x > y) + (x == y) / 2 for x in pos for y in neg) / (len(pos) * len(neg))
        average, before = 0.0, 0.0
        for threshold in sorted(set(p), reverse=True):
            true = sum(x >= threshold for x in pos)
            false = sum(x >= threshold for x in neg)
            average += (true / len(pos) - before) * true / (true + false)
            before = true / len(pos)
    brier = ece = math.nan
    if p:
        brier = sum((x - y) ** 2 for x, y in zip(p, positive, strict=True)) / len(p)
        ece = 0.0
        for place in range(BINS):
            inside = [(x, y) for x, y in zip(p, positive, strict=True) if min(int(x * BINS), BINS - 1) == place]
            if inside:
                gap = sum(x for x, _ in inside) / len(inside) - sum(y for _, y in inside) / len(inside)
                ece += len(inside) / len(p) * abs(gap)
    return {"auroc": auroc, "average_precision": average, "brier": brier, "ece": ece}


def test_by_hand():
    # Pairs: .9 beats both, .4 beats .1 and ties with .4: 3.5 of 4. Thresholds .9, .4: 1/2 * 1 + 1/2 * 2/3.
    found = values([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
    assert found["auroc"] == 3.5 / 4
    assert found["average_precision"] == pytest.approx(1 / 2 + 1 / 3)
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.16 + 0.01) / 4)
    # Bins [.0667, .1333), [.4, .4667) with mean .4 and share .5, and [.8667, .9333).
    assert found["ece"] == pytest.approx((0.1 + 2 * 0.1 + 0.1) / 4)


def test_bins_hold_their_lower_edge_and_the_last_one_holds_1():
    rows = [
        RowResult(id=str(i), task="vqa", group="g", valid=True, label="yes" if i % 2 else "no", p_positive=p)
        for i, p in enumerate((0.0, 0.2, 0.25, 1.0))
    ]
    bins = reliability(rows, "yes")
    assert len(bins) == BINS == 15
    assert [(b.low, b.high) for b in (bins[0], bins[-1])] == [(0.0, 1 / 15), (14 / 15, 1.0)]
    assert [number for number, b in enumerate(bins) if b.n_records] == [0, 3, 14]
    assert (bins[3].n_records, bins[3].mean_probability, bins[3].positive_share) == (2, pytest.approx(0.225), 0.5)
    assert (bins[1].mean_probability, bins[1].positive_share) == (None, None)


# Few distinct numbers, so that ties are common; the bins' edges are among them.
PROBABILITIES = st.one_of(st.sampled_from([0.0, 1 / 15, 0.2, 0.4, 0.5, 0.6, 1.0]), st.floats(0, 1))
RECORDS = st.lists(st.tuples(PROBABILITIES, st.booleans(), st.integers(0, 3)), min_size=1, max_size=25)


@settings(max_examples=150, deadline=None)
@given(RECORDS)
def test_metrics_equal_the_slow_reference(drawn):
    p, positive, _ = zip(*drawn, strict=True)
    assert values(p, positive) == pytest.approx(slow(p, positive), nan_ok=True, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.integers(0, 1000))
def test_a_resample_equals_repeating_its_records(drawn, seed):
    p, positive, codes = zip(*drawn, strict=True)
    draws = draw_groups(max(codes) + 1, 7, seed)
    found = scored(p, positive, codes).values(draws)
    for number, draw in enumerate(draws):
        repeated = [(x, y) for x, y, code in drawn for _ in range(int(draw[code]))]
        expected = slow([x for x, _ in repeated], [y for _, y in repeated])
        assert {name: each[number] for name, each in found.items()} == pytest.approx(expected, nan_ok=True, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=2, max_size=30))
def test_ranking_metrics_see_the_order_only(drawn):
    p = np.array([x / 40 for x, _ in drawn])
    positive = [y for _, y in drawn]
    one, other = values(p, positive), values(p**3 / 2 + 0.1, positive)
    for name in ("auroc", "average_precision"):
        assert one[name] == pytest.approx(other[name], nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30), st.randoms())
def test_order_of_records_does_not_matter_and_swapped_classes_mirror_the_auroc(drawn, random):
    shuffled = random.sample(drawn, len(drawn))
    one, other = (values([x / 8 for x, _ in part], [y for _, y in part]) for part in (drawn, shuffled))
    assert one == pytest.approx(other, nan_ok=True)
    swapped = values([1 - x / 8 for x, _ in drawn], [not y for _, y in drawn])
    assert swapped["auroc"] == pytest.approx(one["auroc"], nan_ok=True)
    assert swapped["brier"] == pytest.approx(one["brier"])


def test_equal_scores_know_nothing():
    found = values([0.3] * 10, [1] * 3 + [0] * 7)
    assert (found["auroc"], found["average_precision"]) == (0.5, pytest.approx(0.3))
    assert found["ece"] == pytest.approx(0.0)


@pytest.mark.parametrize("positive", [0, 1])
def test_ranking_is_not_defined_with_one_class(positive):
    found = values([0.1, 0.9], [positive, positive])
    assert math.isnan(found["auroc"])
    assert math.isnan(found["average_precision"])
    assert found["brier"] == pytest.approx(0.41)


def test_resamples_do_not_depend_on_the_block_size(monkeypatch):
    rng = np.random.default_rng(0)
    part = scored(rng.random(50), rng.random(50) < 0.3, rng.integers(0, 9, 50))
    draws = draw_groups(part.groups, 40, 1)
    whole = part.values(draws)
    monkeypatch.setattr("eval.probability_metrics._BLOCK", 120)
    assert {name: each.tolist() for name, each in part.values(draws).items()} == {
        n: e.tolist() for n, e in whole.items()
    }


def make_rows(seed, count=60):
    rng = np.random.default_rng(seed)
    labels = ["yes" if x < 0.3 else "no" for x in np.random.default_rng(9).random(count)]
    records = [record(i, "vqa", label, group=f"p{i % 7}") for i, label in enumerate(labels)]
    rows = [
        RowResult(
            id=r.id,
            task="vqa",
            group=r.group,
            valid=True,
            label=r.target.label,
            p_positive=round(float(rng.random()), 1),
        )
        for r in records
    ]
    return records, rows


def test_intervals_are_quantiles_over_repeated_records():
    records, rows = make_rows(3)
    sample = make_sample(records, {"vqa": ("yes", "no")}, "accuracy", resamples=100, seed=5)
    metrics = {metric.metric: metric for metric in measure_probabilities(rows, PAIRS, sample)}
    names = sorted({r.group for r in records})
    replicates = []
    for draw in sample.draws:
        repeated = [row for row in rows for _ in range(int(draw[names.index(row.group)]))]
        replicates.append(slow([row.p_positive for row in repeated], [row.label == "yes" for row in repeated]))
    for name, metric in metrics.items():
        low, high = np.quantile([each[name] for each in replicates], [0.025, 0.975])
        assert (metric.low, metric.high) == pytest.approx((low, high))
        assert (metric.n_records, metric.n_groups, metric.undefined_resamples) == (60, 7, 0)


def test_differences_are_paired_over_the_records_both_have():
    records, first = make_rows(3)
    _, second = make_rows(4)
    second[0] = RowResult(id="r0", task="vqa", group="p0", valid=False, label=second[0].label)
    sample = make_sample(records, {"vqa": ("yes", "no")}, "accuracy", resamples=100, seed=5)
    there = list(compare_probabilities(as_system("a", first), as_system("b", second), PAIRS, sample))
    back = list(compare_probabilities(as_system("b", second), as_system("a", first), PAIRS, sample))
    assert [row.metric for row in there] == ["auroc", "average_precision", "brier", "ece"]
    for one, two in zip(there, back, strict=True):
        assert one.n_records == 59
        assert (one.difference, one.low, one.high) == pytest.approx((-two.difference, -two.high, -two.low))
    expected = [
        slow([r.p_positive for r in rows[1:]], [r.label == "yes" for r in rows[1:]]) for rows in (first, second)
    ]
    for row in there:
        assert row.difference == pytest.approx(expected[0][row.metric] - expected[1][row.metric])
    same = list(compare_probabilities(as_system("a", first), as_system("a", first), PAIRS, sample))
    assert all((row.difference, row.low, row.high, row.p) == (0.0, 0.0, 0.0, 1.0) for row in same)


def test_one_class_names_its_counts():
    records, rows = make_rows(3)
    kept = [row if row.label == "no" else None for row in rows]
    rows = [row or RowResult(id="x", task="vqa", group="p0", valid=False) for row in kept]
    sample = make_sample(records, {"vqa": ("yes", "no")}, "accuracy", resamples=100, seed=5)
    auroc = measure_probabilities(rows, PAIRS, sample)[0]
    assert (auroc.value, auroc.low, auroc.undefined_resamples) == (None, None, 100)
    assert auroc.note == f"targets: 0 yes, {sum(k is not None for k in kept)} no"
