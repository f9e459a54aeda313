"""One side of `perf.memory`, in a process of its own."""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch.profiler import ProfilerActivity, profile

from perf.baselines import train_plain, train_trl
from perf.ours import train_ours
from perf.stopwatch import Job, Stopwatch
from train.device_memory import PeakMemory

MIB = 1024**2


class MemoryWatch(Stopwatch):
    """Takes the growth of the process from now on too."""

    def __init__(self) -> None:
        gc.collect()
        self._memory = PeakMemory()
        super().__init__()

    def figures(self, questions: int) -> dict[str, Any]:
        """Also `process`, in MiB."""
        return {**super().figures(questions), "process": self._memory.measured() / MIB}


class TensorWatch(Stopwatch):
    """Counts tensors from now on."""

    def __init__(self) -> None:
        self._counting = ExitStack()
        self._profile = self._counting.enter_context(profile(activities=[ProfilerActivity.CPU], profile_memory=True))
        super().__init__()

    def figures(self, questions: int) -> dict[str, Any]:
        """Also `tensors`, in MiB: their most at once above what was there."""
        self._counting.close()
        results: Any = self._profile.profiler
        events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
        changes: list[int] = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
        return {**super().figures(questions), "tensors": max(itertools.accumulate(changes)) / MIB}


def run_side(side: str, job: Job) -> None:
    """Measures one side and prints the result as JSON."""
    print(json.dumps(measure_side(side, job)))


def measure_side(side: str, job: Job) -> dict[str, Any]:
    """Trains twice.

    Returns:
        `process` and `tensors` in MiB, and the `losses` of the steps.
    """
    train = TRAININGS[side]
    # Counting takes memory itself.
    first = train(job, MemoryWatch)
    return {"process": first["process"], "losses": first["losses"], "tensors": train(job, TensorWatch)["tensors"]}


def _batch(job: Job, watch: type[Stopwatch]) -> dict[str, Any]:
    overrides = [f"batch.size={job.step}", "batch.accumulation=1"]
    return train_ours(job, share=False, overrides=overrides, watch=watch)


TRAININGS: dict[str, Callable[[Job, type[Stopwatch]], dict[str, Any]]] = {
    "shared": lambda job, watch: train_ours(job, share=True, watch=watch),
    "batch": _batch,
    "accumulated": lambda job, watch: train_ours(job, share=False, watch=watch),
    "plain": lambda job, watch: train_plain(job, watch=watch),
    "trl": lambda job, watch: train_trl(job, watch=watch),
}
