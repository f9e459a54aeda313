"""Starts our commands as a user does: alone, or with several processes on the CPU; and kills them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]


def command_line(module: str, processes: int, *words: object) -> list[str]:
    """The command line, under `accelerate launch` where there are several processes."""
    launch = [sys.executable, "-m"]
    if processes > 1:
        launch += ["accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--mixed_precision", "no"]
        # Port 0 lets the system choose one, so that tests beside each other do not meet.
        launch += ["--dynamo_backend", "no", "--main_process_port", "0", "--num_processes", str(processes), "-m"]
    return [*launch, module, *map(str, words)]


def start(module: str, processes: int, *words: object) -> subprocess.Popen[str]:
    """Starts the command in the checkout, output and errors in one pipe."""
    # One thread each, as `accelerate launch` gives several processes: they only wait for each other otherwise.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command_line(module, processes, *words), cwd=ROOT, env=environment, text=True, **pipes)


def complete(module: str, processes: int, *words: object) -> tuple[int, str]:
    """Runs the command to its end; returns its status and all it printed."""
    process = start(module, processes, *words)
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def kill_tree(process: subprocess.Popen[str]) -> None:
    """Kills a launcher and its processes at once; they are sessions of their own, so no group holds them all."""
    try:
        tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        tree = []
    for member in tree:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(tree)
    process.communicate()
