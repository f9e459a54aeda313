"""Starts training on two CPU processes that share weights, and compares what comes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.dataset import read_records
from recipes.schema import Recipe
from tests.collators.samples import folder_images, make_collator
from tests.launching import ROOT, kill_tree

LAUNCH = ("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")
DDP = ("--multi_gpu",)
FSDP = (
    "--use_fsdp",
    "--fsdp_version=2",
    "--fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP",
    "--fsdp_state_dict_type=FULL_STATE_DICT",
)


def deepspeed(folder: Path, stage: int) -> tuple[str, ...]:
    """Launch words for ZeRO with the shipped settings, but for sizes: the matrices of tiny models are cut up too."""
    settings = json.loads((ROOT / f"recipes/deepspeed/zero{stage}.json").read_text())
    if stage == 3:
        settings["zero_optimization"] |= {
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0,
            "stage3_prefetch_bucket_size": 0,
        }
    path = folder / f"zero{stage}.json"
    path.write_text(json.dumps(settings))
    return ("--use_deepspeed", "--deepspeed_config_file", str(path))


def launch(
    how: tuple[str, ...],
    words: list[str],
    out: Path,
    *,
    recipe: str = "demo/lora",
    module: str = "train",
    **environment: str,
) -> tuple[int, str]:
    """Trains in two processes; returns the status and all that was printed.

    After five minutes the launcher and its processes are killed: one that waits for the other would wait for ever.
    """
    command = [sys.executable, "-m", "accelerate.commands.launch", *LAUNCH, "--main_process_port", "0", *how]
    process = subprocess.Popen(
        [*command, "-m", module, recipe, *words, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        raise
    return process.returncode, printed


def trained(how: tuple[str, ...], words: list[str], out: Path, **more: Any) -> str:
    """Trains to the end; returns what was printed."""
    status, printed = launch(how, words, out, **more)
    assert status == 0, printed[-4000:]
    return printed


def history(out: Path) -> list[dict[str, float]]:
    """The log lines of a finished run."""
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


def weights(out: Path) -> dict[str, Any]:
    """The tensors of the saved model, by name."""
    return {key: value for path in (out / "model").glob("*.safetensors") for key, value in load_file(path).items()}


def assert_same_run(out: Path, expected: Path, *, tolerance: float = 1e-4) -> None:
    """Logged losses and gradient norms, names, shapes and values of the weights."""
    for entry, wanted in zip(history(out), history(expected), strict=True):
        for key in ("loss", "grad_norm", "eval_loss"):
            if key in wanted:
                assert entry[key] == pytest.approx(wanted[key], rel=tolerance)
    found, target = weights(out), weights(expected)
    assert {key: value.shape for key, value in found.items()} == {key: value.shape for key, value in target.items()}
    assert all(value.numel() for value in found.values())
    for key, value in target.items():
        if key.endswith(".k_proj.bias"):
            # What all keys share changes no attention weight: the gradient is rounding alone, from which Adam makes steps.
            assert max(found[key].norm(), value.norm()) < 1e-3
        else:
            assert (found[key] - value).norm() <= 2e-3 * value.norm() + 1e-7


def plain_model(out: Path, tiny: Path, kind: str) -> Any:
    """The saved folder, loaded as anybody would."""
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    base = AutoModelForImageTextToText.from_pretrained(tiny if kind == "lora" else out / "model")
    return (PeftModel.from_pretrained(base, str(out / "model")) if kind == "lora" else base).eval()


def answers(model: Any, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and greedy tokens of four validation questions."""
    data = Path(recipe.data.dataset)
    collator = make_collator(recipe, folder_images(data), targets=False)
    inputs = collator(list(read_records(data, "val"))[:4])
    with torch.inference_mode():
        logits = model(**inputs).logits
        return logits, model.generate(**inputs, do_sample=False, max_new_tokens=12, use_cache=True)
