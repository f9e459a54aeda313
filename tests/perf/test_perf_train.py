import json
import os
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perf.__main__ import main
from perf.comparison import markdown
from perf.train import CASES, HEAD, SIDES, ideal, loss_difference, run_train
from perf.workload import Workload

SIZE = Workload(questions=6, slices=2, pixels=32, tokens=6)


@pytest.fixture
def here(monkeypatch, capsys):
    """Measures in this process."""
    torch.set_num_threads(1)

    def measured(benchmark, side, options, *, fix):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        assert main([benchmark, "--side", side, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr("perf.comparison.measured_apart", measured)


def small(name):
    return replace(CASES[name], size=SIZE)


def test_the_report_has_every_side_of_every_case_and_what_they_differ_by(here, capsys, tmp_path):
    names = ("volumes-64", "tokens-80", "pairs")
    run_train({name: small(name) for name in names}, rounds=1, threads=1, out=tmp_path / "new")
    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])
    assert json.loads((tmp_path / "new" / "train.json").read_text()) == figures
    text = (tmp_path / "new" / "train.md").read_text()
    assert printed.startswith(text)
    assert set(figures["cases"]) == set(names)
    for name, case in figures["cases"].items():
        assert tuple(case["sides"]) == CASES[name].sides
        assert case["loss_difference"] < 1e-5
        assert {len(side["losses"]) for side in case["sides"].values()} == {2}
        assert case["sides"]["plain"]["times_plain"] == {"seconds": 1.0, "cpu": 1.0}
        assert all(side["peak_rss_mb"]["median"] > 0 for side in case["sides"].values())
        assert (case["ideal"] is None) == (name == "pairs")
    volumes = figures["cases"]["volumes-64"]
    assert volumes["ideal"] == ideal(volumes["shared_tokens"], volumes["own_tokens"], 5)
    assert figures["cases"]["tokens-80"]["sides"]["plain"]["times_trl"] is None
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert tuple(lines[0]) == HEAD
    assert [tuple(line[:2]) for line in lines[2:]] == [(name, side) for name in names for side in CASES[name].sides]


def test_the_command_measures_the_cases_that_are_named(monkeypatch):
    asked = []

    def run_train(cases, *, rounds, threads, out):
        asked.append((list(cases), rounds, threads, os.environ["OMP_NUM_THREADS"]))

    monkeypatch.setattr("perf.train.run_train", run_train)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert main(["train", "--cases", "pairs", "volumes-64", "--rounds", "3", "--threads", "2"]) == 0
    assert main(["train"]) == 0
    assert asked == [(["volumes-64", "pairs"], 3, 2, "2"), (list(CASES), 2, 1, "1")]


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(1, 300), st.integers(1, 9))
def test_the_ideal_lies_between_no_gain_and_one_per_question(shared, own, questions):
    assert 1.0 - 1e-9 <= ideal(shared, own, questions) <= questions
    assert ideal(shared, own, 1) == pytest.approx(1.0)
    assert ideal(0, own, questions) == pytest.approx(1.0)
    assert ideal(shared, 0, questions) == pytest.approx(questions)


def test_the_difference_of_losses_is_the_largest_from_the_plain_loops():
    assert loss_difference({"plain": [1.0, 2.0], "trl": [1.0, 2.5], "shared": [0.75, 2.0]}) == 0.5


def test_sides_have_the_baselines_of_the_issue():
    assert {"plain", "trl"} < set(SIDES)
    assert all(case.sides[0] == "plain" for case in CASES.values())


def test_a_table_is_as_wide_as_its_cells():
    assert markdown(("case", "side", "s"), [("a", "plain", "1.5"), ("long one", "b", "")]).splitlines() == [
        "| case     | side  |   s |",
        "| -------- | ----- | --: |",
        "| a        | plain | 1.5 |",
        "| long one | b     |     |",
    ]
