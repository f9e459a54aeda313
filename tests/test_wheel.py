"""The wheel holds the packages and their data, and neither tests nor perf."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_wheel_contents(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"benchmarks", "collators", "models", "recipes", "train", "infer", "eval"}
    for wanted in (
        "recipes/demo/lora.yaml",
        "recipes/accelerate/gpu8.yaml",
        "recipes/deepspeed/zero3.json",
        "recipes/slurm/train.sh",
        "eval/templates/report.html.j2",
        "models/demo_base/model.safetensors",
        "models/demo_base_mri/model.safetensors",
        "models/demo_base_paligemma/model.safetensors",
    ):
        assert wanted in names
