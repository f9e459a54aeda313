"""Joining: only exactly the predicted records of the predicted dataset are scored."""

import re

import pytest

from benchmarks.errors import DataError
from benchmarks.predictions import Prediction
from eval.run import load_runs
from tests.eval.cases import perfect, record, write_data, write_run


@pytest.fixture
def records():
    return [record(i, "vqa", "yes" if i % 3 else "no") for i in range(8)]


@pytest.fixture
def data(tmp_path, records):
    return write_data(tmp_path / "data", records)


def test_predictions_come_back_in_record_order(tmp_path, data, records):
    folder = write_run(tmp_path / "run", data, [perfect(r) for r in reversed(records)])
    (run,) = load_runs([folder])
    assert [row.id for row in run.predictions] == [r.id for r in run.records] == [r.id for r in records]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-6], r"6 missing \(r2, r3, r4, r5, r6 and 1 more\)"),
        (lambda rows: [*rows, Prediction(id="zz", invalid="x")], r"1 unexpected \(zz\)"),
        (lambda rows: [*rows, rows[3]], r"1 repeated \(r3\)"),
        (
            lambda rows: [*rows[1:], rows[1], Prediction(id="zz", invalid="x")],
            r"1 missing \(r0\); 1 unexpected \(zz\); 1 repeated \(r1\)",
        ),
        (lambda rows: [], r"8 missing"),
    ],
    ids=["missing", "unexpected", "repeated", "all three", "empty"],
)
def test_ids_must_match_exactly(tmp_path, data, records, change, message):
    folder = write_run(tmp_path / "run", data, change([perfect(r) for r in records]))
    with pytest.raises(DataError, match=message) as caught:
        load_runs([folder])
    assert "predictions.jsonl" in caught.value.where


@pytest.mark.parametrize(
    ("fields", "message"),
    [({}, "this one has none"), ({"invalid": "x", "error": "y"}, "this one has invalid and error")],
    ids=["none", "two"],
)
def test_a_row_holds_one_outcome(tmp_path, data, records, fields, message):
    rows = [perfect(r) for r in records]
    rows[2] = Prediction(id="r2", text="t", **fields)
    with pytest.raises(DataError, match=message) as caught:
        load_runs([write_run(tmp_path / "run", data, rows)])
    assert "row 3, record r2" in caught.value.where


def test_limit_restricts_the_expected_records(tmp_path, data, records):
    rows = [perfect(r) for r in records[:3]]
    (run,) = load_runs([write_run(tmp_path / "run", data, rows, limit=3)])
    assert len(run.records) == 3
    with pytest.raises(DataError, match="5 missing"):
        load_runs([write_run(tmp_path / "whole", data, rows)])


def test_another_dataset_is_refused_even_if_named(tmp_path, data, records):
    folder = write_run(tmp_path / "run", data, [perfect(r) for r in records])
    other = write_data(tmp_path / "other", [*records[:-1], record(7, "vqa", "no", region="head")])
    with pytest.raises(DataError, match="is not the dataset that was predicted"):
        load_runs([folder], other)
    moved = data.rename(tmp_path / "moved")
    with pytest.raises(DataError, match=re.escape("--data")):
        load_runs([folder])
    assert load_runs([folder], moved)[0].data == moved


def test_an_edited_record_file_is_refused(tmp_path, data, records):
    folder = write_run(tmp_path / "run", data, [perfect(r) for r in records])
    path = data / "records-test.jsonl"
    path.write_text(path.read_text().replace('"label":"no"', '"label":"yes"', 1))
    with pytest.raises(DataError, match="SHA-256"):
        load_runs([folder])


@pytest.mark.parametrize(
    "fields", [{"dataset_hash": "0" * 64}, {"split": "val"}, {"limit": 2}], ids=lambda f: next(iter(f))
)
def test_folders_of_other_records_do_not_share_a_table(tmp_path, data, records, fields):
    rows = [perfect(r) for r in records]
    first, second = write_run(tmp_path / "a", data, rows), write_run(tmp_path / "b", data, rows, **fields)
    with pytest.raises(DataError, match=f"do not belong in one table: {next(iter(fields))}"):
        load_runs([first, second])


def test_names_are_unique(tmp_path, data, records):
    rows = [perfect(r) for r in records]
    folders = [write_run(tmp_path / place / "run", data, rows, name="qwen") for place in "abc"]
    folders.append(write_run(tmp_path / "other", data, rows, name="qwen"))
    assert [run.name for run in load_runs(folders)] == ["qwen (run)", "qwen (run) #2", "qwen (run) #3", "qwen (other)"]


def test_unfinished_folder_says_how_to_continue(tmp_path):
    with pytest.raises(DataError, match="is not a finished prediction folder"):
        load_runs([tmp_path])


def test_other_folders_are_named_for_what_they_are(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        load_runs([tmp_path / "nowhere"])
    (tmp_path / "model").mkdir()
    with pytest.raises(DataError, match="holds a model, not its predictions") as raised:
        load_runs([tmp_path])
    assert f"python -m infer {tmp_path}" in raised.value.fix
