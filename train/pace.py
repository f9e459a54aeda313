"""How long a run takes: its first steps are timed, and the rest of it follows from them."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from train.plan import Plan

# The first step of a process is left out: libraries and threads start in it, and it has the longest sample.
TIMED = 5


class Pace(TrainerCallback):  # type: ignore[misc]
    """Times steps 2 to 6 of a process, batches included, saving and validation not, and says what follows once.

    Of a shorter run it times all steps but the first.

    Args:
        plan: Which samples make up which step.
        first: Steps done before.
        total: Steps of the whole run.
        say: Takes the line.
    """

    def __init__(self, plan: Plan, *, first: int, total: int, say: Callable[[str], None]) -> None:
        self._per_epoch = plan.steps_per_epoch
        self._total = total
        self._say = say
        timed = plan.steps(first + 1, total) if first + 1 < total else iter(())
        self._tokens = [plan.tokens(step) for step in islice(timed, TIMED)]
        self._seconds: list[float] = []
        self._began: float | None = None
        self._skipped = False

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,  # noqa: ARG002 - the callback's signature
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Starts the clock, if the step is to be timed."""
        timed = self._skipped and len(self._seconds) < len(self._tokens)
        self._began = _now(args.device) if timed else None

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,  # noqa: ARG002 - the callback's signature
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Stops it; after the last timed step says what follows."""
        self._skipped = True
        if self._began is None:
            return
        self._seconds.append(_now(args.device) - self._began)
        if len(self._seconds) == len(self._tokens):
            with tqdm.external_write_mode():  # the progress bar makes room for the line
                self._say(self._line())

    @property
    def facts(self) -> dict[str, float] | None:
        """For the manifest: the number of timed steps, mean seconds of a step and of a pass, tokens per second."""
        if not self._seconds:
            return None
        step = sum(self._seconds) / len(self._seconds)
        return {
            "timed_steps": len(self._seconds),
            "seconds_per_step": round(step, 4),
            "seconds_per_epoch": round(step * self._per_epoch, 1),
            "tokens_per_second": round(sum(self._tokens[: len(self._seconds)]) / sum(self._seconds), 1),
        }

    def _line(self) -> str:
        facts = self.facts
        assert facts is not None
        step = facts["seconds_per_step"]
        return (
            f"measured: {duration(step)} per step, {duration(step * self._per_epoch)} per epoch of {self._per_epoch:,} "
            f"steps, about {duration(step * self._total)} in all without validation, "
            f"{facts['tokens_per_second']:,.0f} tokens/s"
        )


def duration(seconds: float) -> str:
    """`0.42 s`, `12.3 s`, `5 min 20 s`, `31 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if round(seconds) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def _now(device: torch.device) -> float:
    """The clock, once a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
