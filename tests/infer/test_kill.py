"""SIGKILL at random moments: a run that is started again until it is done writes the uninterrupted file."""

import random
import subprocess

import pytest

from benchmarks.predictions import MANIFEST, PREDICTIONS
from tests.launching import complete, kill_tree, start

KILLS = 10
RECORDS = 22


def words_of(model_run, phantom_data, out):
    """A run of eleven blocks with long answers, so that kills fall into all of its phases."""
    settings = ("decoding.batch_size=2", "decoding.max_new_tokens=200")
    return (model_run, "--data", phantom_data, "--limit", RECORDS, *settings, "--out", out)


@pytest.fixture(scope="module")
def whole(model_run, phantom_data, tmp_path_factory):
    """Bytes of the uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "out"
    status, output = complete("infer", 1, *words_of(model_run, phantom_data, out))
    assert status == 0, output
    return (out / PREDICTIONS).read_bytes()


def written(out):
    """Bytes in the part files so far."""
    return sum(path.stat().st_size for path in out.glob("parts/part-*.jsonl"))


def run_and_kill(processes, words, out, moment):
    """Starts the command and kills it, `moment` being seconds from the start or bytes of progress.

    Returns:
        Whether it was still running.
    """
    kind, amount = moment
    before = written(out)
    process = start("infer", processes, *words)
    seconds = amount if kind == "seconds" else 0.02
    while True:
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            if kind == "seconds" or written(out) >= before + amount:
                kill_tree(process)
                return True
        else:
            return False


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_ten_kills_leave_no_trace(whole, model_run, phantom_data, tmp_path, processes):
    out = tmp_path / "out"
    words = words_of(model_run, phantom_data, out)
    rng = random.Random(processes)
    killed = partly = 0
    while killed < KILLS:
        # Seconds fall before, between and after the blocks; bytes make sure that many fall between them.
        moment = ("seconds", rng.uniform(0.1, 8)) if killed % 3 == 0 else ("bytes", rng.randint(1, len(whole) // 6))
        if run_and_kill(processes, words, out, moment):
            killed += 1
            partly += written(out) > 0 and not (out / MANIFEST).exists()
        else:
            assert (out / MANIFEST).exists()
            # Done before the moment came: once more from the start, the kills go on counting.
            assert (out / PREDICTIONS).read_bytes() == whole
            out = tmp_path / f"out-{killed}"
            words = words_of(model_run, phantom_data, out)
    assert partly >= 3
    status, output = complete("infer", processes, *words)
    assert status == 0, output
    assert (out / PREDICTIONS).read_bytes() == whole
