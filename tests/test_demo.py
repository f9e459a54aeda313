"""The demos' table, and the demos themselves with three seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.demo.__main__ import CLAIMS, claims, table
from recipes.errors import UserError

ROOT = Path(__file__).parent.parent


def result(difference: float, low: float, benchmark: str = "scintiground") -> dict[str, object]:
    claimed = CLAIMS.get(benchmark, ())
    metrics = [{"task": c.task, "metric": c.metric, "value": 0.8, "low": 0.7, "high": 0.9} for c in claimed]
    comparisons = [
        {
            "first": "tuned",
            "second": "base",
            "task": claim.task,
            "metric": claim.metric,
            "difference": difference,
            "low": low,
            "high": 0.9,
        }
        for claim in claimed
    ]
    systems = [{"name": "tuned", "metrics": metrics}]
    return {"dataset": {"benchmark": benchmark}, "systems": systems, "comparisons": comparisons}


@pytest.mark.parametrize(("benchmark", "cell"), [("scintiground", "0.800 [0.700, 0.900]"), ("sgmri", "0.800")])
def test_table_has_a_row_per_system(benchmark, cell):
    lines = table(result(0.5, 0.4, benchmark))
    assert lines[-1].startswith("tuned")
    assert lines[-1].count(cell) == len(CLAIMS[benchmark])


def test_a_benchmark_without_a_demo_is_refused():
    with pytest.raises(UserError, match="no demo claims anything of generic"):
        claims(result(0.5, 0.4, "generic"))


@pytest.mark.parametrize("benchmark", CLAIMS)
@pytest.mark.parametrize(("difference", "low", "shown"), [(0.5, 0.1, True), (0.5, -0.01, False), (0.05, 0.01, False)])
def test_a_claim_needs_margin_and_interval(benchmark, difference, low, shown):
    lines = claims(result(difference, low, benchmark))
    assert len(lines) == len(CLAIMS[benchmark])
    assert all(line.startswith("shown" if shown else "NOT SHOWN") for line in lines)


def test_strict_mode_fails_when_a_claim_does(tmp_path):
    file = tmp_path / "result.json"
    for low, status in ((0.1, 0), (-0.1, 1)):
        file.write_text(json.dumps(result(0.5, low)))
        command = [sys.executable, "-m", "recipes.demo", str(file), "--strict"]
        assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == status


@pytest.mark.parametrize("strict", [[], ["--strict"]])
@pytest.mark.parametrize("task", ["none at all", "grounding", "vqa"])
def test_a_claim_without_a_comparison_is_not_taken_as_shown(tmp_path, strict, task):
    file = tmp_path / "result.json"
    whole = result(0.5, 0.1)
    whole["comparisons"] = [each for each in whole["comparisons"] if each["task"] == task]
    file.write_text(json.dumps(whole))
    command = [sys.executable, "-m", "recipes.demo", str(file), *strict]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "no system is compared with 'tuned'" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("target", "variable", "benchmark"),
    [("demo", "DEMO", "scintiground"), ("demo-paligemma", "ARM", "scintiground"), ("demo-mri", "MRI", "sgmri")],
)
def test_demo_holds_its_claims(target, variable, benchmark, seed, tmp_path):
    """All demos with other phantoms, another order and, with LoRA, other adapter weights; about five minutes each."""
    folder = tmp_path / "demo"
    command = ["make", target, f"SEED={seed}", f"{variable}={folder}", f"BIN={Path(sys.executable).parent}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert run.returncode == 0, run.stderr[-3000:]
    # Five opponents for each claim.
    claimed = [line for line in run.stdout.splitlines() if "tuned - " in line]
    assert [line.split()[0] for line in claimed] == ["shown"] * 5 * len(CLAIMS[benchmark]), run.stdout
    assert (folder / "report.html").is_file()
