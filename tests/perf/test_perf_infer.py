import json
from dataclasses import replace

import pytest
import torch

from perf.__main__ import main
from perf.infer import BATCHES, CASES, HEAD, OURS, SIDES, best_batch, other_texts, run_infer
from perf.rounds import Spread
from perf.workload import Workload

SIZE = Workload(questions=6, slices=2, pixels=32, tokens=6)


def test_the_report_has_every_batch_size_and_how_many_texts_differ(monkeypatch, capsys, tmp_path):
    torch.set_num_threads(1)

    def here(benchmark, side, options, *, fix):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        assert main([benchmark, "--side", side, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr("perf.comparison.measured_apart", here)
    cases = {name: replace(CASES[name], size=SIZE) for name in ("volumes-64", "pairs")}
    run_infer(cases, rounds=1, threads=1, out=tmp_path)
    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])
    assert json.loads((tmp_path / "infer.json").read_text()) == figures
    text = (tmp_path / "infer.md").read_text()
    assert printed.startswith(text)
    assert set(figures["cases"]) == set(cases)
    for case in figures["cases"].values():
        assert tuple(case["sides"]) == SIDES
        assert case["best"] in SIDES
        for side, baseline in ((case["best"], "times_best"), ("generate-1", "times_alone")):
            assert case["sides"][side][baseline] == {"seconds": 1.0, "cpu": 1.0}
        assert {side["new_tokens"] for side in case["sides"].values()} == {32 * SIZE.questions}
        assert {side["other_texts"] for side in case["sides"].values()} == {0}
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert tuple(lines[0]) == HEAD
    assert [tuple(line[:2]) for line in lines[2:]] == [(name, side) for name in cases for side in SIDES]


def test_the_best_batch_size_is_one_of_generate():
    def measured(seconds):
        return {"seconds_per_question": Spread(median=seconds, lowest=seconds, highest=seconds)}

    assert best_batch({"generate-1": measured(3.0), "generate-4": measured(2.0), OURS: measured(1.0)}) == "generate-4"


def test_every_batch_size_can_be_filled():
    assert max(BATCHES) <= min(case.size.questions for case in CASES.values())


@pytest.mark.parametrize(("others", "count"), [([[1, 2], [3]], 0), ([[1, 2], [4]], 1), ([[2, 1], []], 2)])
def test_texts_are_compared_token_by_token(others, count):
    assert other_texts([[1, 2], [3]], others) == count
