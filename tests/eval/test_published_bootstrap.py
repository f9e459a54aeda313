"""The fast bootstrap gives the numbers of the published one, which scores every resample anew."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scintiground_text import CLASS_WORDS, TASKS, OfficialAnswer, multitask_json
from eval.scintiground import bootstrap
from eval.scintiground.bootstrap import METRICS, bounds, intervals, patients_of, replicates
from eval.scintiground.compare import compare
from eval.scintiground.report import report
from eval.scintiground.scoring import ScoredRow, score_rows
from eval.scintiground.strata import strata


def make(rng, rows=40, patients=7):
    """Random rows and outputs: wrong classes, regions and boxes, one view missing, invalid texts."""
    made, outputs = [], {}
    for number in range(rows):
        task = rng.choice(TASKS)
        label = rng.choice(CLASS_WORDS[task]) if task in CLASS_WORDS else None
        views = rng.choice([("ANT",), ("POST",), ("ANT", "POST")])
        bbox = [rng.randrange(50), rng.randrange(50), 50 + rng.randrange(1, 50), 50 + rng.randrange(1, 50)]
        made.append(
            {
                "task_id": f"t{number}",
                "task": task,
                "patient_id": f"p{rng.randrange(patients)}",
                "images": [{"view": view, "image_size": [256, 1024]} for view in ("ANT", "POST")],
                "label": "left knee",
                "answer_label": label,
                "targets": [] if task == "vqa" else [{"view": view, "bbox": bbox} for view in views],
                "region_level": "bone_region",
                "view_scope": views[0] if len(views) == 1 else "BOTH",
            }
        )
        outputs[f"t{number}"] = answer(rng, task, views, bbox)
    return made, outputs


def answer(rng, task, views, bbox):
    if rng.random() < 0.1:
        return "no idea"
    moved = [(view, [bbox[0], bbox[1], bbox[2] + rng.randrange(30), bbox[3]]) for view in views if rng.random() < 0.9]
    return multitask_json(
        OfficialAnswer(
            task=task,
            answer="x",
            label=rng.choice(CLASS_WORDS[task]) if task in CLASS_WORDS else None,
            region=rng.choice(["left knee", "left knee", "head"]),
            boxes=tuple(moved),
        )
    )


def resampled_rows(rows, resamples, seed):
    """The published way: patients sorted as text, their rows once a draw, under new ids."""
    patients = sorted({row["patient_id"] for row in rows})
    rng = random.Random(seed)
    for _ in range(resamples):
        drawn = rng.choices(patients, k=len(patients))
        yield [row for patient in drawn for row in rows if row["patient_id"] == patient]


def slow_replicates(rows, outputs, resamples, seed):
    values = {f"{task}.{name}": [] for task, name in METRICS}
    for drawn in resampled_rows(rows, resamples, seed):
        renamed = [{**row, "task_id": str(number)} for number, row in enumerate(drawn)]
        texts = {str(number): outputs[row["task_id"]] for number, row in enumerate(drawn)}
        result = report(score_rows(renamed, texts))
        for task, name in METRICS:
            values[f"{task}.{name}"].append(result[task][name])
    return values


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(2, 15))
@settings(max_examples=25, deadline=None)
def test_fast_equals_slow(seed, rows, patients):
    made, outputs = make(random.Random(seed), rows, patients)
    if len({row["patient_id"] for row in made}) < 2:
        return
    fast = replicates(score_rows(made, outputs), resamples=12, seed=seed)
    assert fast == slow_replicates(made, outputs, 12, seed)


def edge_rows(rng):
    """Rows whose mean IoU often lies on the edge between two roundings."""
    return [
        ScoredRow(
            row={"task": "grounding", "patient_id": f"p{number % 5}", "label": "head"},
            lenient=None,
            valid=True,
            ious=tuple(rng.randrange(10**6) * 5e-7 for _ in range(rng.randrange(1, 3))),
        )
        for number in range(12)
    ]


def slow_edge_replicates(scored, resamples, seed):
    patients = patients_of(scored)
    rng = random.Random(seed)
    values = []
    for _ in range(resamples):
        drawn = rng.choices(patients, k=len(patients))
        resampled = [row for patient in drawn for row in scored if row.row["patient_id"] == patient]
        values.append(report(resampled)["grounding"]["mean_iou"])
    return values


def test_sums_on_the_edge_of_a_rounding_are_added_in_the_published_order(monkeypatch):
    scored = edge_rows(random.Random(3))
    slow = slow_edge_replicates(scored, 400, seed=3)
    assert replicates(scored, resamples=400, seed=3)["grounding.mean_iou"] == slow
    # Without the second addition the orders do differ, so the line above shows something.
    monkeypatch.setattr(bootstrap, "_EDGE", 0.0)
    assert replicates(scored, resamples=400, seed=3)["grounding.mean_iou"] != slow


def test_the_order_of_rows_of_different_patients_does_not_matter():
    made, outputs = make(random.Random(1), 30, 6)
    first = replicates(score_rows(made, outputs), resamples=20, seed=5)
    by_patient = sorted(made, key=lambda row: row["patient_id"], reverse=True)
    assert replicates(score_rows(by_patient, outputs), resamples=20, seed=5) == first


def test_chunks_do_not_show(monkeypatch):
    scored = score_rows(*make(random.Random(2)))
    whole = replicates(scored, resamples=30, seed=9)
    monkeypatch.setattr(bootstrap, "_CHUNK", 7)
    assert replicates(scored, resamples=30, seed=9) == whole


def test_replicates_without_a_value_are_dropped_and_counted():
    block = intervals({"m": [None, 0.5, None, 0.25]}, patients=3, resamples=4, seed=1)
    assert block["metrics"]["m"] == {"valid_resamples": 2, "lower_95": 0.25, "upper_95": 0.5}
    nothing = intervals({"m": [None]}, patients=3)["metrics"]["m"]
    assert nothing == {"valid_resamples": 0, "lower_95": None, "upper_95": None}


def test_bounds_are_the_sorted_values_50_and_1949_of_2000():
    assert bounds([float(v) for v in reversed(range(2000))]) == (50.0, 1949.0)


@pytest.mark.parametrize("patients", [["1", 2], ["1", None], ["1", ""], ["1", "1"]])
def test_patients_must_be_text_and_at_least_two(patients):
    scored = score_rows(*make(random.Random(4), rows=2))
    named = [
        dataclasses.replace(row, row={**row.row, "patient_id": patient})
        for row, patient in zip(scored, patients, strict=True)
    ]
    with pytest.raises(ValueError, match="patient"):
        replicates(named, resamples=1)


def test_comparison_is_antisymmetric_and_a_model_equals_itself():
    made, outputs = make(random.Random(6), 60, 9)
    _, other_outputs = make(random.Random(7), 60, 9)
    other_outputs = {row["task_id"]: "none" if i % 3 else outputs[row["task_id"]] for i, row in enumerate(made)}
    first, second = (replicates(score_rows(made, o), resamples=200, seed=8) for o in (outputs, other_outputs))
    forward, backward = compare(first, second), compare(second, first)
    for name, block in forward.items():
        assert backward[name]["mean_difference"] == -block["mean_difference"]
        assert backward[name]["p_bootstrap"] == block["p_bootstrap"]
        assert backward[name]["p_z_difference_over_sd"] == block["p_z_difference_over_sd"]
    same = compare(first, first)["grounding.mean_iou"]
    assert same == {
        "valid_pairs": 200,
        "mean_difference": 0.0,
        "difference_ci_95": [0.0, 0.0],
        "p_bootstrap": 1.0,
        "p_z_difference_over_sd": None,
        "p_paired_t_on_replicates": None,
    }


def test_pairs_with_a_missing_side_are_dropped():
    block = compare({"m": [0.5, None, 0.75]}, {"m": [0.25, 0.5, None]})["m"]
    assert (block["valid_pairs"], block["mean_difference"], block["p_z_difference_over_sd"]) == (1, 0.25, None)
    assert compare({"m": [None]}, {"m": [0.5]})["m"]["mean_difference"] is None


def test_strata_split_the_rows_and_list_empty_values():
    scored = score_rows(*make(random.Random(5), 50))
    found = strata(scored)
    for task in TASKS:
        total = sum(row.row["task"] == task for row in scored)
        assert sum(found["view_scope"][scope][task]["rows"] for scope in ("ANT", "POST", "BOTH")) == total
    assert found["label"]["shoulder"]["vqa"]["rows"] == 0
    assert found["region_level"]["metastasis"]["grounding"]["mean_iou"] is None
