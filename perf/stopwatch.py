"""The job that every side of `train` and `infer` does, and how its time and memory are taken."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from train.device_memory import peak_resident

NEW_TOKENS = 32
STEP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The first questions of a task, in file order: one pass of training, or one answer each.

    Attributes:
        data: Folder with the rows (`perf.rows`).
        model: Folder of a Qwen3-VL.
        task: `volumes` or `pairs`.
        questions: How many.
        step: Questions of an optimiser step.
    """

    data: Path
    model: Path
    task: str
    questions: int
    step: int = STEP


class Stopwatch:
    """Time of this process and of the ones that it started and that have ended, from now on; memory since it began."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._cpu = _cpu_seconds()

    def figures(self, questions: int) -> dict[str, Any]:
        """Seconds and processor seconds for each question, and MiB of this process at its peak."""
        seconds, cpu = time.perf_counter() - self._start, _cpu_seconds() - self._cpu
        return {
            "seconds_per_question": seconds / questions,
            "cpu_seconds_per_question": cpu / questions,
            "peak_rss_mb": peak_resident() / 1024**2,
        }


def import_rest() -> None:
    """Imports what accelerate would import in the middle of a run where it is installed: imports are not timed."""
    if find_spec("deepspeed") is not None:
        import_module("deepspeed")


def _cpu_seconds() -> float:
    return sum(os.times()[:4])
