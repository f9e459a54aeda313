"""SIGKILL at random moments, also while saving: the run that is started again ends with the same weights."""

from __future__ import annotations

import json
import random
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file

from tests.launching import complete, kill_tree, start
from tests.train.runs import curve
from train.checkpoints import SEAL

KILLS = 10
STEPS = 30
SAVE = 2
KINDS = {
    "lora": ("adapter.dropout=0.1",),
    "full": ("adapter.kind=full", "train.optimizer=muon", "train.learning_rate=1.0e-3"),
}


def words_of(kind, processes, tiny, data, out):
    """A run of 30 steps that saves after every second one and validates after every third."""
    settings = {
        "data.dataset": data,
        "model.checkpoint": tiny,
        "batch.size": 4 // processes,
        "batch.workers": 1,
        "train.max_steps": STEPS,
        "train.save_steps": SAVE,
        "train.validate_steps": 3,
        "train.log_steps": 1,
    }
    return ("demo/lora", *(f"{key}={value}" for key, value in settings.items()), *KINDS[kind], "--out", out)


def weights(out):
    return load_file(next((out / "model").glob("*.safetensors")))


def saving(out):
    """Whether a checkpoint is being written, or an old one removed, at this moment."""
    return any(not (folder / SEAL).exists() for folder in out.glob("checkpoints/checkpoint-*"))


def run_and_kill(words, processes, out, rng, *, while_saving):
    """Starts the command and kills it some time after its first new checkpoint began, or while it saves.

    Returns:
        Whether it was still running, and whether a torn checkpoint was left.
    """
    process = start("train", processes, *words)
    newest = max(out.glob("checkpoints/checkpoint-*"), key=lambda path: path.stat().st_mtime, default=None)
    deadline = None
    while True:
        try:
            process.communicate(timeout=0.002)
        except subprocess.TimeoutExpired:
            now = max(out.glob("checkpoints/checkpoint-*"), key=_age, default=None)
            if deadline is None and now != newest:
                deadline = time.monotonic() + rng.uniform(0, 1.5)
            if (while_saving and saving(out)) or (deadline is not None and time.monotonic() > deadline):
                torn = saving(out)
                kill_tree(process)
                return True, torn
        else:
            return False, False


def _age(path):
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # rotated away meanwhile
        return 0.0


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", list(KINDS))
def test_ten_kills_leave_no_trace(kind, processes, tiny, phantom_data, tmp_path):
    straight = tmp_path / "straight"
    status, output = complete("train", processes, *words_of(kind, processes, tiny, phantom_data, straight))
    assert status == 0, output
    out = tmp_path / "killed"
    words = words_of(kind, processes, tiny, phantom_data, out)
    rng = random.Random(f"{kind}{processes}")
    killed = torn = 0
    while killed < KILLS:
        alive, half = run_and_kill(words, processes, out, rng, while_saving=killed % 2 == 0)
        if alive:
            killed, torn = killed + 1, torn + half
        else:  # it was done before the moment came: once more from the start, the kills go on counting
            assert same(weights(out), weights(straight))
            out = tmp_path / f"killed-{killed}"
            words = words_of(kind, processes, tiny, phantom_data, out)
    assert torn >= 1
    status, output = complete("train", processes, *words)
    assert status == 0, output
    assert same(weights(out), weights(straight))
    assert curve(out) == curve(straight)
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (out, straight)]
    assert manifests[0]["weights_hash"] == manifests[1]["weights_hash"]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in b)
