import json
from dataclasses import replace

import pytest
import torch

from perf.__main__ import main
from perf.load import CASES, HEAD, SIDES, run_load
from perf.load_side import MEASURES
from perf.stopwatch import Job
from perf.workload import Workload, write_workload

SIZE = Workload(questions=10, slices=3, pixels=32, tokens=6)


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("workload")
    write_workload(folder, SIZE)
    return folder


@pytest.mark.parametrize(
    ("task", "pictures"),
    [
        # Ten questions about two volumes of three slices, and about a pair of views each.
        ("volumes", {"stock": 30, "separate": 30, "shared": 6, "workers-2": 6, "pixels": 0, "cached": 0}),
        ("pairs", {"stock": 20, "separate": 20, "shared": 20, "workers-2": 20, "pixels": 0, "cached": 0}),
    ],
)
def test_pictures_are_opened_as_often_as_a_side_says(workload, task, pictures):
    job = Job(data=workload / "data", model=workload / "model", task=task, questions=SIZE.questions)
    for side, measure in MEASURES.items():
        found = measure(job)
        assert found["questions_per_second"] > 0
        opened = found["pictures_per_second"] / found["questions_per_second"] * SIZE.questions
        if side == "workers-2":
            # They read ahead, and into the pass behind.
            assert opened <= 2 * pictures[side] + 1e-6
        else:
            assert opened == pytest.approx(pictures[side])


def test_the_report_has_every_side(monkeypatch, capsys, tmp_path):
    def here(benchmark, side, options, *, fix):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        assert main([benchmark, "--side", side, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr("perf.comparison.measured_apart", here)
    run_load({"volumes": replace(CASES["volumes"], size=SIZE)}, rounds=1, threads=1, out=tmp_path)
    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])
    assert json.loads((tmp_path / "load.json").read_text()) == figures
    assert printed.startswith((tmp_path / "load.md").read_text())
    assert tuple(figures["cases"]["volumes"]["sides"]) == SIDES == tuple(MEASURES)
    assert figures["cases"]["volumes"]["sides"]["stock"]["times_stock"] == 1
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line[:1] == "|"]
    assert tuple(lines[0]) == HEAD
    assert [line[1] for line in lines[2:]] == list(SIDES)
