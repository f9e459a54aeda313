"""The comparison of the two recipes for the rare class."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.minority.__main__ import COLUMNS, line

ROOT = Path(__file__).parents[2]


def result(low: float) -> dict[str, object]:
    metrics = [{"task": task, "metric": metric, "value": 0.6, "low": 0.5, "high": 0.7} for task, metric in COLUMNS]
    comparisons = [
        {"task": task, "metric": metric, "difference": 0.4, "low": low, "high": 0.5} for task, metric in COLUMNS
    ]
    systems = [{"name": name, "metrics": metrics} for name in ("ours", "paper")]
    return {"systems": systems, "comparisons": comparisons}


@pytest.mark.parametrize(("low", "said"), [(0.1, " shown"), (-0.1, "NOT SHOWN")])
def test_a_difference_is_shown_if_its_interval_excludes_zero(low, said):
    text = line(result(low), "vqa", "f1:yes")
    assert text.startswith("ours 0.600 [0.500, 0.700]  paper 0.600 [0.500, 0.700]  difference +0.400")
    assert text.endswith(said)


def test_a_seed_is_a_row(tmp_path):
    files = []
    for seed in (0, 1):
        files.append(tmp_path / f"{seed}.json")
        files[-1].write_text(json.dumps(result(0.1)))
    command = [sys.executable, "-m", "recipes.minority", *map(str, files)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.count("seed 0") == printed.count("seed 1") == len(COLUMNS)
