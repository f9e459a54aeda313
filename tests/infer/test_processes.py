"""Several processes under `accelerate launch` on the CPU: they share the work, and one folder has one writer."""

import pytest

from benchmarks.predictions import PREDICTIONS, read_manifest, read_predictions
from infer.run import Request, run
from tests.launching import complete

LIMIT = 10


@pytest.fixture(scope="module")
def alone(model_run, phantom_data, tmp_path_factory):
    """What one process predicts."""
    out = tmp_path_factory.mktemp("alone") / "out"
    return run(Request(weights=str(model_run), data=phantom_data, split="test", out=out, limit=LIMIT))


def test_two_processes_are_two_and_write_the_file_of_one(alone, model_run, phantom_data, tmp_path):
    out = tmp_path / "out"
    words = (model_run, "--data", phantom_data, "--limit", LIMIT, "--out", out)
    status, output = complete("infer", 2, *words)
    assert status == 0, output
    assert read_manifest(out).environment["processes"] == 2
    assert (out / PREDICTIONS).read_bytes() == (alone / PREDICTIONS).read_bytes()
    assert output.count("predictions: ") == 1


@pytest.mark.slow
def test_a_refusal_in_one_process_ends_all(alone, model_run, phantom_data):
    words = (model_run, "--data", phantom_data, "--limit", LIMIT, "--out", alone, "decoding.max_new_tokens=3")
    status, output = complete("infer", 2, *words)
    assert status != 0
    assert "decoding.max_new_tokens: 12 -> 3" in output


@pytest.mark.slow
def test_22_records_in_blocks_of_8_by_3_processes_are_22_rows(model_run, phantom_data, tmp_path):
    words = (model_run, "--data", phantom_data, "--limit", 22, "decoding.batch_size=8")
    for processes in (1, 3):
        status, output = complete("infer", processes, *words, "--out", tmp_path / str(processes))
        assert status == 0, output
    rows = read_predictions(tmp_path / "3")
    assert len({row.id for row in rows}) == len(rows) == 22
    assert read_manifest(tmp_path / "3").environment["processes"] == 3
    assert (tmp_path / "3" / PREDICTIONS).read_bytes() == (tmp_path / "1" / PREDICTIONS).read_bytes()
