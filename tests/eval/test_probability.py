"""Label scores become probabilities, and every record without them is counted."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import DataError
from benchmarks.predictions import Prediction, encode_prediction, read_predictions
from eval.__main__ import main
from eval.evaluate import evaluate
from eval.run import load_runs
from eval.schema import RESULT_VERSION, encode_result, read_result
from tests.eval.cases import perfect, predict, record, text_for, write_data, write_run
from tests.eval.probability_cases import CLASSES, answers, make_records, scores, write_folders


@pytest.fixture
def records():
    return [record(i, "vqa", "yes" if i % 3 == 0 else "no", group=f"p{i // 2}") for i in range(12)]


def score(tmp_path, records, rows, name="run", **fields):
    data = tmp_path / "data"
    if not data.exists():
        write_data(data, records, records[0].benchmark)
    runs = load_runs([write_run(tmp_path / name, data, rows, **fields)])
    return evaluate(runs, profiles=["corrected"], resamples=100)


def test_probability_is_the_softmax_over_the_two_labels(tmp_path, records):
    ps = [(i + 0.5) / 12 for i in range(12)]
    rows = [predict(r, text_for(r), **scores(r, p)) for r, p in zip(records, ps, strict=True)]
    result = score(tmp_path, records, rows)
    (system,) = result.systems
    assert [row.p_positive for row in system.rows] == pytest.approx(ps)
    (found,) = system.probabilities
    assert (found.task, found.positive, found.negative) == ("vqa", "yes", "no")
    assert (found.n_records, found.n_scored, found.missing, found.at) == (12, 12, [], {"prompt": 12})
    assert sum(part.n_records for part in found.bins) == 12
    assert result.version == RESULT_VERSION == 3


@settings(max_examples=40, deadline=None)
@given(st.floats(-1e4, 0), st.floats(-1e4, 0))
def test_extreme_log_probabilities_neither_overflow_nor_leave_the_unit_interval(tmp_path_factory, yes, no):
    asked = record(0, "vqa", "yes")
    given_scores = {"yes": yes, "no": no}
    folder = tmp_path_factory.mktemp("run")
    result = score(folder, [asked], [predict(asked, text_for(asked), label_scores=given_scores)])
    p = result.systems[0].rows[0].p_positive
    assert 0 <= p <= 1
    assert (p > 0.5) == (yes - no > 1e-15) or abs(yes - no) < 1e-12
    assert result.systems[0].probabilities[0].at == {"unknown": 1}


def test_rows_without_scores_are_counted_and_named(capsys, tmp_path, records):
    rows = [predict(r, text_for(r), **scores(r, 0.2)) for r in records]
    rows[1] = Prediction(id="r1", error="out of memory")
    rows[2] = predict(records[2], "nonsense")
    rows[3] = perfect(records[3])
    rows[4] = predict(records[4], "nonsense", **scores(records[4], 0.7))
    result = score(tmp_path, records, rows)
    (found,) = result.systems[0].probabilities
    assert (found.n_records, found.n_scored) == (12, 9)
    assert [(m.reason, m.count, m.first) for m in found.missing] == [
        ("error", 1, "r1"),
        ("invalid", 1, "r2"),
        ("no label scores", 1, "r3"),
    ]
    auroc = next(m for m in result.systems[0].metrics if m.metric == "auroc")
    assert auroc.n_records == 9
    line = (
        "run, vqa: probabilities cover 9 of 12 records with a class; without: "
        "1 error (first: r1), 1 invalid (first: r2), 1 no label scores (first: r3)"
    )
    assert line in result.notes
    assert main([str(tmp_path / "run"), "--resamples", "100"]) == 0
    out = capsys.readouterr().out
    assert "vqa: P(yes)" in out
    assert "9 of 12" in out
    assert line in out


def test_scores_on_an_error_row_count_nowhere(tmp_path, records):
    rows = [predict(r, text_for(r), **scores(r, 0.2)) for r in records]
    rows[0] = Prediction(id="r0", error="failed", label_scores={"yes": -0.1, "no": -3.0})
    system = score(tmp_path, records, rows).systems[0]
    assert system.rows[0].p_positive is None
    assert system.probabilities[0].missing[0].reason == "error"


def test_without_label_scores_nothing_is_said_of_probabilities(capsys, tmp_path, records):
    system = score(tmp_path, records, [perfect(r) for r in records]).systems[0]
    assert system.probabilities == []
    assert not {"auroc", "brier"} & {metric.metric for metric in system.metrics}
    main([str(tmp_path / "run"), "--resamples", "100"])
    assert "probabilities" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given_scores", "message"),
    [
        ({"yes": -0.1}, "they name 'yes', the task's classes are 'yes', 'no'"),
        ({"abnormal": -0.1, "normal": -2.0}, "they name 'abnormal', 'normal'"),
        ({"yes": -0.1, "no": -3.0, "maybe": -4.0}, "'maybe'"),
        ({}, "they name no label"),
        ({"yes": 0.9, "no": 0.1}, "no log probability can be"),
        ({"yes": math.inf, "no": -1.0}, "no log probability can be"),
    ],
    ids=["one", "other task", "three", "none", "probabilities", "infinite"],
)
def test_scores_that_are_no_log_probabilities_of_the_classes_are_refused(tmp_path, records, given_scores, message):
    rows = [predict(r, text_for(r), **scores(r, 0.2)) for r in records]
    rows[5] = predict(records[5], text_for(records[5]))
    data = write_data(tmp_path / "data", records)
    (run,) = load_runs([write_run(tmp_path / "run", data, rows)])
    spoilt = list(run.predictions)
    spoilt[5] = msgspec.structs.replace(spoilt[5], label_scores=given_scores)
    object.__setattr__(run, "predictions", tuple(spoilt))
    with pytest.raises(DataError, match=message) as caught:
        evaluate([run], profiles=["corrected"], resamples=100)
    assert caught.value.where.endswith("predictions.jsonl, record r5, field label_scores")


def test_unknown_place_of_the_slot_is_refused_in_the_file(tmp_path):
    row = Prediction(id="r", invalid="x", label_scores={"yes": -1.0, "no": -0.5}, label_scores_at="generated")
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(encode_prediction(row) + b"\n")
    assert read_predictions(tmp_path) == [row]
    path.write_text(path.read_text().replace("generated", "somewhere"))
    with pytest.raises(DataError, match="label_scores_at"):
        read_predictions(tmp_path)


def test_places_of_the_slot_that_differ_are_noted(tmp_path, records):
    rows = [predict(r, text_for(r), **scores(r, 0.2)) for r in records]
    rows[0] = msgspec.structs.replace(rows[0], label_scores_at="generated")
    notes = score(tmp_path, records, rows).notes
    assert "run, vqa: label scores were read at different places: generated 1, prompt 11" in notes


def generic(records, labels):
    return [
        msgspec.structs.replace(r, benchmark="generic", target=msgspec.structs.replace(r.target, label=label))
        for r, label in zip(records, labels, strict=True)
    ]


def test_own_yes_no_data_has_probabilities_and_other_classes_are_noted(tmp_path, records):
    own = generic(records, ["Yes", "No"] * 6)
    rows = [predict(r, "yes", "plain", label_scores={"Yes": -0.2, "No": -2.0}) for r in own]
    system = score(tmp_path, own, rows, codec="plain").systems[0]
    assert (system.probabilities[0].positive, system.probabilities[0].n_scored) == ("yes", 12)
    graded = generic(records, ["mild", "severe"] * 6)
    rows = [predict(r, "mild", "plain", label_scores={"mild": -0.2, "severe": -2.0}) for r in graded]
    (tmp_path / "graded").mkdir()
    result = score(tmp_path / "graded", graded, rows, codec="plain")
    assert result.systems[0].probabilities == []
    assert (
        "run, vqa: label scores of 12 records are not used: its classes (mild, severe) are not a positive and a negative one"
    ) in result.notes


def test_result_with_probabilities_and_thresholds_round_trips(tmp_path):
    _, test, val = write_folders(tmp_path, make_records())
    target = tmp_path / "r.json"
    assert main([str(test), "--threshold-from", str(val), "--resamples", "100", "--json", str(target)]) == 0
    result = read_result(target)
    assert encode_result(result) == target.read_bytes()
    (system,) = result.systems
    assert {found.task for found in system.probabilities} == set(CLASSES)
    assert {found.task for found in system.thresholds} == set(CLASSES)


def test_systems_are_compared_by_their_probabilities(capsys, tmp_path):
    records = make_records()
    data, test, _ = write_folders(tmp_path, records)
    blank = write_run(tmp_path / "blank", data, answers(records, "test", skill=0.0), control="blank_image")
    assert main([str(test), str(blank), "--resamples", "100"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("ours - blank") and "AUROC" in line]
