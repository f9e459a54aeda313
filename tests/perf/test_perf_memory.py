import json
from dataclasses import replace

import pytest
import torch

from perf.__main__ import main
from perf.memory import CASES, FIGURES, HEAD, SIDES, run_memory
from perf.memory_side import measure_side
from perf.stopwatch import Job
from perf.workload import Workload, write_workload


def test_a_step_of_shared_images_takes_less_than_its_questions_apart_in_one_pass(tmp_path):
    """By tensors, which are the same in every run; all sides learn the same."""
    torch.set_num_threads(1)
    size = Workload(questions=10, slices=8, pixels=128, group=5)
    write_workload(tmp_path, size)
    job = Job(data=tmp_path / "data", model=tmp_path / "model", task="volumes", questions=10, step=5)
    found = {side: measure_side(side, job) for side in ("shared", "batch", "accumulated", "plain")}
    assert found["shared"]["tensors"] < 0.5 * found["batch"]["tensors"]
    # One question after the other is not beaten: their own tokens are beside each other in a shared row.
    assert found["accumulated"]["tensors"] < found["batch"]["tensors"]
    assert found["accumulated"]["tensors"] < found["plain"]["tensors"]  # logits at every position
    for side in found.values():
        assert side["losses"] == pytest.approx(found["plain"]["losses"], abs=1e-5)
        assert side["process"] >= 0


@pytest.mark.slow
def test_the_report_has_every_side_at_equal_questions_a_step(monkeypatch, capsys, tmp_path):
    def here(benchmark, side, options, *, fix):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        assert main([benchmark, "--side", side, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr("perf.comparison.measured_apart", here)
    small = {
        name: replace(case, size=replace(case.size, slices=1, pixels=32, tokens=6, questions=case.size.group))
        for name, case in CASES.items()
    }
    run_memory(small, rounds=1, threads=1, out=tmp_path)
    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])
    assert json.loads((tmp_path / "memory.json").read_text()) == figures
    assert {name: case["group"] for name, case in figures["cases"].items()} == {"5x20": 5, "9x60": 9}
    for case in figures["cases"].values():
        assert tuple(case["sides"]) == SIDES
        assert case["sides"]["shared"]["tensors_ratio"] == 1
        # One step, whatever its questions.
        assert {len(side["losses"]) for side in case["sides"].values()} == {1}
        assert all(side[key]["median"] >= 0 for side in case["sides"].values() for key in FIGURES)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line[:1] == "|"]
    assert tuple(lines[0]) == HEAD
    assert [tuple(line[:2]) for line in lines[2:]] == [(name, side) for name in CASES for side in SIDES]
