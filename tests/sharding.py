"""Starts training on two CPU processes that share weights, and compares what comes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tests.launching import ROOT

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
    """Trains in two processes; returns the status and all that was printed."""
    command = [sys.executable, "-m", "accelerate.commands.launch", *LAUNCH, "--main_process_port", "0", *how]
    result = subprocess.run(
        [*command, "-m", module, recipe, *words, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return result.returncode, result.stdout


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
