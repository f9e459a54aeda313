"""A clock that knows what a program is doing: every moment belongs to exactly one phase, so that phases add up to the whole.

On a CPU a mark is a reading of the clock. On a GPU it is an event in the stream: nothing is waited for before the end,
and a phase lasts from when the device reaches its mark to when it reaches the next one. A device that waits for the
program counts the wait to the phase in which the program let it wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

REST = "rest"


class PhaseClock:
    """Adds up the time of phases, lap by lap. It runs from its making.

    Args:
        device: What computes; `None` and the CPU are timed by `now`.
        now: Reads a clock, in seconds.

    Attributes:
        current: The phase that is going on.
        lap_ends: When each lap ended by `now`, whatever computes.
    """

    def __init__(self, device: torch.device | None = None, now: Callable[[], float] = time.perf_counter) -> None:
        self.current = REST
        self._on_gpu = device is not None and device.type == "cuda"
        self._now = now
        # The phase that ended at each mark.
        self._marks: list[tuple[str, Any]] = [("", self._mark())]
        self._laps: list[int] = []
        self.lap_ends: list[float] = []

    def enter(self, phase: str) -> None:
        """Ends the current phase and begins another one."""
        self._marks.append((self.current, self._mark()))
        self.current = phase

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase within another one, which goes on afterwards."""
        before = self.current
        self.enter(name)
        try:
            yield
        finally:
            self.enter(before)

    def lap(self) -> None:
        """Ends a lap; the current phase goes on in the next one."""
        self.enter(self.current)
        self._laps.append(len(self._marks))
        self.lap_ends.append(self._now())

    def laps(self) -> list[dict[str, float]]:
        """Seconds of each phase in each lap that has ended. Waits for the device."""
        if self._on_gpu:
            torch.cuda.synchronize()
        spans = [(phase, self._seconds(before, after)) for (_, before), (phase, after) in pairwise(self._marks)]
        found = []
        for first, last in pairwise([1, *self._laps]):
            lap: dict[str, float] = {}
            for phase, seconds in spans[first - 1 : last - 1]:
                lap[phase] = lap.get(phase, 0.0) + seconds
            found.append(lap)
        return found

    def _mark(self) -> Any:  # noqa: ANN401 - a number, or an event of CUDA
        if not self._on_gpu:
            return self._now()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _seconds(self, before: Any, after: Any) -> float:  # noqa: ANN401 - see `_mark`
        seconds: float = before.elapsed_time(after) / 1000 if self._on_gpu else after - before
        return seconds


def added(laps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of each phase over several laps."""
    return {phase: sum(lap.get(phase, 0.0) for lap in laps) for lap in laps for phase in lap}
