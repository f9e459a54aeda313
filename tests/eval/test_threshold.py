"""Thresholds come from validation predictions of the same system, and change classes only."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.dataset import load_info
from benchmarks.errors import DataError
from benchmarks.predictions import Prediction
from eval.__main__ import main
from eval.evaluate import evaluate
from eval.run import load_runs
from eval.threshold import choose_threshold
from eval.threshold_match import match_validation
from recipes.errors import UserError
from tests.eval.cases import perfect, predict, text_for, write_data, write_run
from tests.eval.probability_cases import CLASSES, SYSTEM, answers, make_records, scores, write_folders


def balanced_accuracy(p, positive, threshold):
    called = [x >= threshold for x in p]
    recall = np.mean([c for c, y in zip(called, positive, strict=True) if y])
    rest = np.mean([not c for c, y in zip(called, positive, strict=True) if not y])
    return (recall + rest) / 2


def choose(p, positive):
    return choose_threshold(np.array(p, dtype=float), np.array(positive, dtype=bool))


@pytest.mark.parametrize(
    ("p", "positive", "threshold", "merit"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], 0.25, 1.0),
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 0.5, 1.0),
        ([0.2, 0.2, 0.2], [0, 1, 1], 0.5, 0.5),
        ([0.5, 0.1], [1, 0], 0.5, 1.0),
        ([0.5, 0.9], [0, 1], 0.7, 1.0),
        ([1.0, 1.0], [0, 1], 0.5, 0.5),
        ([0.0, 1.0], [1, 0], 0.0, 0.5),
    ],
    ids=["middle", "half inside", "useless", "half at a score", "above half", "all one", "inverted"],
)
def test_chosen_by_hand(p, positive, threshold, merit):
    found = choose(p, positive)
    assert (found.threshold, found.balanced_accuracy) == (pytest.approx(threshold), merit)


def test_ties_go_to_the_range_nearest_to_half():
    # Two cuts are equally good: at (.1, .2] and at (.4, .6].
    p, positive = [0.1, 0.2, 0.4, 0.6], [0, 1, 0, 1]
    assert balanced_accuracy(p, positive, 0.15) == balanced_accuracy(p, positive, 0.5)
    assert choose(p, positive).threshold == 0.5
    # Mirrored ranges around .5: the lower one.
    assert choose([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1]).threshold == pytest.approx(0.3)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(0, 1)), st.booleans()),
        min_size=2,
        max_size=20,
    )
)
def test_no_threshold_is_better(drawn):
    p, positive = zip(*drawn, strict=True)
    found = choose(p, positive)
    if all(positive) or not any(positive):
        assert found is None
        return
    assert 0 <= found.threshold <= 1
    assert balanced_accuracy(p, positive, found.threshold) == pytest.approx(found.balanced_accuracy)
    rivals = sorted({0.0, 0.5, 1.0, *p, *(math.nextafter(x, 2) for x in p)})
    best = max(balanced_accuracy(p, positive, rival) for rival in rivals if rival <= 1)
    assert found.balanced_accuracy == pytest.approx(best)
    if balanced_accuracy(p, positive, 0.5) == pytest.approx(best):
        assert found.threshold == 0.5


@pytest.fixture
def records():
    return make_records()


@pytest.fixture
def folders(tmp_path, records):
    return write_folders(tmp_path, records)


def score(test, val):
    runs = load_runs([test])
    return evaluate(runs, profiles=["corrected"], resamples=100, validation=match_validation(runs, [val])).systems[0]


def test_threshold_turns_classes_and_shows_what_it_changes(folders):
    _, test, val = folders
    system = score(test, val)
    found = {threshold.task: threshold for threshold in system.thresholds}
    assert set(found) == set(CLASSES)
    vqa, grounded = found["vqa"], found["grounded_vqa"]
    assert vqa.validation == {"yes": 3, "no": 5}
    assert 0.05 < vqa.threshold < 0.45
    assert vqa.validation_balanced_accuracy > 0.7
    assert [change.metric for change in vqa.changes] == ["balanced_accuracy", "macro_f1", "f1:yes"]
    assert [change.metric for change in grounded.changes] == ["balanced_accuracy", "macro_f1", "f1:abnormal", "strict"]
    for threshold in (vqa, grounded):
        rows = [row for row in system.rows if row.task == threshold.task]
        assert threshold.to_positive == sum(row.p_positive >= threshold.threshold for row in rows) > 0
        assert threshold.to_negative == threshold.kept == 0
        balanced = threshold.changes[0]
        assert balanced.before == 0.5
        assert balanced.after == pytest.approx(
            balanced_accuracy(
                [row.p_positive for row in rows], [row.label == threshold.positive for row in rows], threshold.threshold
            )
        )
        assert balanced.difference == pytest.approx(balanced.after - balanced.before)
        assert balanced.low <= balanced.difference <= balanced.high
    # The boxes are all right, so a record is strictly right where its class is.
    strict = grounded.changes[-1]
    grounded_rows = [row for row in system.rows if row.task == "grounded_vqa"]
    decided = [row.p_positive >= grounded.threshold for row in grounded_rows]
    assert strict.after == np.mean(
        [d == (row.label == "abnormal") for d, row in zip(decided, grounded_rows, strict=True)]
    )


def test_headline_metrics_stay_those_of_the_texts(folders):
    _, test, val = folders
    with_threshold = score(test, val)
    without = evaluate(load_runs([test]), profiles=["corrected"], resamples=100).systems[0]
    assert with_threshold.metrics == without.metrics
    assert with_threshold.rows == without.rows


def test_threshold_does_not_see_the_test_labels(tmp_path, folders, records):
    _, test, val = folders
    first = score(test, val)
    other = {"yes": "no", "no": "yes", "normal": "abnormal", "abnormal": "normal"}
    turned = [
        msgspec.structs.replace(r, target=msgspec.structs.replace(r.target, label=other[r.target.label]))
        if r.split == "test" and r.target.label
        else r
        for r in records
    ]
    data = write_data(tmp_path / "turned", turned)
    new_test = write_run(tmp_path / "t2", data, answers(records, "test", seed=1), **SYSTEM)
    new_val = write_run(tmp_path / "v2", data, answers(records, "val", seed=2), split="val", **SYSTEM)
    second = score(new_test, new_val)
    for one, two in zip(first.thresholds, second.thresholds, strict=True):
        assert one.threshold == two.threshold
        assert one.validation_balanced_accuracy == two.validation_balanced_accuracy
        assert (one.to_positive, one.to_negative) == (two.to_positive, two.to_negative)
        assert one.changes[0].after != two.changes[0].after


def test_threshold_does_follow_the_validation_labels(tmp_path, folders, records):
    data, test, val = folders
    rows = answers(records, "val", seed=2)
    lowered = [
        msgspec.structs.replace(row, label_scores={label: 2 * value - 1 for label, value in row.label_scores.items()})
        if row.label_scores
        else row
        for row in rows
    ]
    other = write_run(tmp_path / "other", data, lowered, split="val", **SYSTEM)
    assert score(test, val).thresholds[0].threshold != score(test, other).thresholds[0].threshold


def test_invalid_answers_boxes_and_answers_without_scores_stay(tmp_path, records):
    data = write_data(tmp_path / "data", records)
    tests = [r for r in records if r.split == "test"]
    rows = answers(records, "test", seed=1)
    closed = [i for i, r in enumerate(tests) if r.task == "grounded_vqa"]
    first, second, third = closed[:3]
    rows[first] = predict(tests[first], "nonsense", **scores(tests[first], 0.99))
    rows[second] = perfect(tests[second])
    rows[third] = predict(
        tests[third], text_for(tests[third], by_view={"ANT": [40, 90, 60, 120]}), **scores(tests[third], 0.99)
    )
    test = write_run(tmp_path / "test", data, rows, **SYSTEM)
    val = write_run(tmp_path / "val", data, answers(records, "val", seed=2), split="val", **SYSTEM)
    system = score(test, val)
    threshold = system.thresholds[-1]
    assert threshold.task == "grounded_vqa"
    assert (threshold.kept, threshold.changes[0].n_records) == (1, 8)
    right = 0
    for place in closed:
        row = system.rows[place]
        decided = "abnormal" if row.p_positive is not None and row.p_positive >= threshold.threshold else "normal"
        # The first is invalid, the second keeps its right class, the third boxes the wrong place.
        right += place == second or (place not in (first, third) and decided == row.label)
    strict = threshold.changes[-1]
    assert strict.after == right / 8
    assert strict.after < 1
    assert threshold.to_positive == sum(
        system.rows[place].p_positive >= threshold.threshold for place in closed if place not in (first, second)
    )


def test_no_threshold_without_both_classes(tmp_path, records):
    data = write_data(tmp_path / "data", records)
    rows = answers(records, "val", seed=2)
    vals = [r for r in records if r.split == "val"]
    rows = [
        perfect(r) if r.task == "vqa" and r.target.label == "yes" else row for r, row in zip(vals, rows, strict=True)
    ]
    test = write_run(tmp_path / "test", data, answers(records, "test"), **SYSTEM)
    val = write_run(tmp_path / "val", data, rows, split="val", **SYSTEM)
    vqa, grounded = score(test, val).thresholds
    assert (vqa.threshold, vqa.changes) == (None, [])
    assert vqa.note == "no threshold: validation records with label scores are 0 yes, 5 no"
    assert vqa.validation_missing == 3
    assert grounded.threshold is not None


def test_command_shows_before_and_after(capsys, folders):
    _, test, val = folders
    assert main([str(test), "--threshold-from", str(val), "--resamples", "100"]) == 0
    out = capsys.readouterr().out
    assert "thresholds on P(positive), chosen on validation" in out
    assert "ours, vqa: yes if P(yes) >= " in out
    (line,) = [line for line in out.splitlines() if "F1 abnormal (minority)" in line]
    assert line.startswith("ours [a]")
    assert f"next: python -m eval {test} --threshold-from {val} --html report.html" in out


def change_recipe(**train):
    return {"recipe": {"name": "ours", "train": SYSTEM["recipe"]["train"] | train}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weights_hash": "b" * 64}, r"another system than ours: weights_hash is 'bbb.* in validation, 'aaa.* here"),
        ({"base_weights_hash": "b" * 64}, "base_weights_hash is 'bbb"),
        ({"encoder_fingerprint": "e" * 64}, "encoder_fingerprint is 'eee"),
        ({"control": "blank_image"}, "control is 'blank_image' in validation, None here"),
        (change_recipe(learning_rate=2e-4), r"recipe.train.learning_rate is 0.0002 in validation, 0.0001 here"),
        (change_recipe(seed=1), r"recipe.train.seed is 1 in validation, None here"),
        ({"recipe": None}, "recipe.name is None in validation, 'ours' here"),
        ({"weights_hash": None}, "no weights_hash"),
        ({"split": "train"}, "chosen on the split 'val' only"),
    ],
    ids=["weights", "base", "encoder", "control", "recipe", "recipe key", "no recipe", "no hash", "train split"],
)
def test_validation_of_another_system_is_refused_with_the_difference(tmp_path, folders, records, fields, message):
    data, test, _ = folders
    other = write_run(tmp_path / "other", data, answers(records, "val"), **({"split": "val"} | SYSTEM | fields))
    with pytest.raises(DataError, match=message) as caught:
        main([str(test), "--threshold-from", str(other)])
    assert caught.value.where == str(other / "manifest.json")


def test_another_codec_is_refused(tmp_path, folders, records):
    data, test, _ = folders
    other = write_run(tmp_path / "other", data, answers(records, "val"), split="val", codec="plain", **SYSTEM)
    with pytest.raises(DataError, match="codec is 'plain' in validation, 'scintiground_json' here"):
        main([str(test), "--threshold-from", str(other)])


def test_the_scored_split_is_refused(folders):
    _, test, val = folders
    with pytest.raises(DataError, match="both hold the split 'test'"):
        main([str(test), "--threshold-from", str(test)])
    with pytest.raises(DataError, match="both hold the split 'val'"):
        main([str(val), "--threshold-from", str(val)])


def test_shared_records_are_refused(tmp_path, folders, records):
    _, test, _ = folders
    moved = [msgspec.structs.replace(r, split="val") for r in records if r.split == "test"]
    data = write_data(tmp_path / "moved", moved)
    val = write_run(tmp_path / "v", data, answers(moved, "val"), split="val", **SYSTEM)
    with pytest.raises(DataError, match="24 validation records are among the scored ones"):
        main([str(test), "--threshold-from", str(val)])


def test_another_dataset_and_a_part_of_the_split_are_noted(tmp_path, folders, records):
    _, test, _ = folders
    data = write_data(tmp_path / "own", [r for r in records if r.split == "val"])
    val = write_run(tmp_path / "v", data, answers(records, "val")[:18], split="val", limit=18, **SYSTEM)
    runs = load_runs([test])
    result = evaluate(runs, profiles=["corrected"], resamples=100, validation=match_validation(runs, [val]))
    assert "thresholds of ours rest on the first 18 validation records only" in result.notes
    short = load_info(data).content_hash[:12]
    assert any(f"chosen on another dataset, tiny ({short})" in note for note in result.notes)


@pytest.mark.parametrize("bare", ["test", "val"])
def test_folders_without_label_scores_are_refused(tmp_path, records, bare):
    data = write_data(tmp_path / "data", records)
    folder = {}
    for split in ("test", "val"):
        rows = answers(records, split)
        if split == bare:
            rows = [perfect(r) for r in records if r.split == split]
        folder[split] = write_run(tmp_path / split, data, rows, split=split, **SYSTEM)
    with pytest.raises(DataError, match="needs label scores") as caught:
        main([str(folder["test"]), "--threshold-from", str(folder["val"]), "--resamples", "100"])
    assert caught.value.where == str(folder[bare] / "predictions.jsonl")


def test_several_systems_each_get_their_own_validation(tmp_path, folders, records):
    data, test, val = folders
    second = {"weights_hash": "b" * 64}
    blank = {"control": "blank_image"}
    others = [
        write_run(tmp_path / "t2", data, answers(records, "test", seed=5), name="second", **(SYSTEM | second)),
        write_run(tmp_path / "t3", data, answers(records, "test", seed=6), name="blank", **(SYSTEM | blank)),
    ]
    val2 = write_run(tmp_path / "v2", data, answers(records, "val", seed=7), split="val", **(SYSTEM | second))
    runs = load_runs([test, *others])
    matched = match_validation(runs, [val2, val])
    assert {name: run.folder for name, run in matched.items()} == {"ours": val, "second": val2}
    result = evaluate(runs, profiles=["corrected"], resamples=100, validation=matched)
    assert [bool(system.thresholds) for system in result.systems] == [True, True, False]
    assert "no threshold for blank: no validation folder of this system was given" in result.notes
    again = write_run(tmp_path / "v3", data, answers(records, "val", seed=8), split="val", **SYSTEM)
    with pytest.raises(DataError, match="two validation folders are of the system ours"):
        match_validation(runs, [val, again])


def test_failed_validation_records_are_left_out_and_counted(tmp_path, folders, records):
    data, test, _ = folders
    rows = answers(records, "val", seed=2)
    rows[0] = Prediction(id=rows[0].id, error="out of memory")
    val = write_run(tmp_path / "v", data, rows, split="val", **SYSTEM)
    vqa = score(test, val).thresholds[0]
    assert (sum(vqa.validation.values()), vqa.validation_missing) == (7, 1)


def test_published_profile_alone_takes_no_threshold(folders):
    _, test, val = folders
    with pytest.raises(UserError, match="--threshold-from changes answers"):
        main([str(test), "--threshold-from", str(val), "--profile", "published"])
