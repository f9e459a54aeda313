"""Starts `python -m infer` as a user does: alone, or with several processes on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def infer_command(processes: int, *words: object) -> list[str]:
    """The command line, under `accelerate launch` where there are several processes."""
    launch = [sys.executable, "-m"]
    if processes > 1:
        launch += ["accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--mixed_precision", "no"]
        # Port 0 lets the system choose one, so that tests beside each other do not meet.
        launch += ["--dynamo_backend", "no", "--main_process_port", "0", "--num_processes", str(processes), "-m"]
    return [*launch, "infer", *map(str, words)]


def start(processes: int, *words: object) -> subprocess.Popen[str]:
    """Starts the command in the checkout, output and errors in one pipe."""
    # One thread each, as `accelerate launch` gives several processes: they only wait for each other otherwise.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(infer_command(processes, *words), cwd=ROOT, env=environment, text=True, **pipes)


def complete(processes: int, *words: object) -> tuple[int, str]:
    """Runs the command to its end; returns its status and all it printed."""
    process = start(processes, *words)
    output, _ = process.communicate(timeout=300)
    return process.returncode, output
