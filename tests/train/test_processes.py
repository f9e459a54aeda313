"""Two processes are two, and train what one process trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.sharding import DDP, assert_same_run, trained
from tests.train.runs import silent
from tests.volumes import MIXED, TEXT_AND_VOLUME, VOLUME_AND_SLICE, VOLUME_AND_TEXT, write_steps
from train.run import run

TWO = (
    "--multi_gpu",
    "--num_processes",
    "2",
    "--num_machines",
    "1",
    "--mixed_precision",
    "no",
    "--dynamo_backend",
    "no",
)


def train(recipe, overrides, out: Path, *, processes: int):
    """Runs `-m train RECIPE` in subprocesses; returns history, manifest and output."""
    launcher = [sys.executable, "-m"]
    if processes > 1:
        launcher = [str(Path(sys.executable).with_name("accelerate")), "launch", *TWO, "-m"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [*launcher, "train", recipe, *overrides, "--out", str(out)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return history, json.loads((out / "manifest.json").read_text()), result.stdout


@pytest.mark.parametrize(
    ("recipe", "reduction"), [("demo/lora", "token"), ("demo/lora", "sample"), ("demo/paligemma_lora", "sample")]
)
def test_two_processes_equal_one(recipe, reduction, tiny, tiny_paligemma, phantom_data, tmp_path):
    """Also in the last step of a pass (71 = 4 x 16 + 7 samples), where the processes hold 4 and 3 samples.

    By tokens the second process runs out of samples and repeats one without weight.
    """
    shared = [
        f"data.dataset={phantom_data}",
        f"model.checkpoint={tiny if recipe == 'demo/lora' else tiny_paligemma(1)}",
        f"batch.loss_reduction={reduction}",
        "batch.workers=0",
        "train.max_steps=6",
        "train.save_steps=6",
        "train.log_steps=1",
        "train.clip_norm=1.0e+9",
    ]
    one, facts_one, _ = train(recipe, [*shared, "batch.size=16"], tmp_path / "one", processes=1)
    two, facts_two, printed = train(
        recipe, [*shared, "batch.size=8", "batch.max_tokens=500"], tmp_path / "two", processes=2
    )
    assert (facts_one["processes"], facts_two["processes"]) == (1, 2)
    assert "x 2 processes" in printed
    assert printed.count("steps of 16 samples") == 1  # said once, not once a process
    for a, b in zip(one, two, strict=True):
        for key in ("loss", "grad_norm", "eval_loss"):
            if key in a:
                assert b[key] == pytest.approx(a[key], rel=1e-5)
    weights = [load_file(tmp_path / name / "model/adapter_model.safetensors") for name in ("one", "two")]
    moved = [key for key in weights[0] if "lora_B" in key]
    for key in moved:
        gap = (weights[0][key] - weights[1][key]).norm()
        assert gap <= 1e-3 * weights[0][key].norm()


def test_volumes_slices_and_texts_are_learnt_alike_however_a_step_is_cut(tiny, make_recipe, tmp_path):
    """In four passes of one sample, in one of four, and by two processes of which one has images and the other none."""
    steps = (TEXT_AND_VOLUME, VOLUME_AND_TEXT, VOLUME_AND_SLICE)
    data = write_steps(tmp_path / "data", steps, validation=("volume", "text", "slice"))
    words = [
        *MIXED,
        f"data.dataset={data}",
        f"model.checkpoint={tiny}",
        "adapter.kind=full",
        "train.learning_rate=1.0e-3",
        "train.max_steps=3",
        "train.save_steps=3",
        "train.log_steps=1",
        "train.warmup_steps=0",
        "batch.workers=0",
    ]
    whole, one_by_one, two = tmp_path / "whole", tmp_path / "one_by_one", tmp_path / "two"
    run(make_recipe(*words, "batch.size=4"), whole, silent)
    run(make_recipe(*words, "batch.size=1", "batch.accumulation=4"), one_by_one, silent)
    trained(DDP, [*words, "batch.size=1", "batch.accumulation=2"], two)
    assert_same_run(one_by_one, whole)
    assert_same_run(two, whole)
