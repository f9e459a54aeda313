"""Finds and reads the loss history of the run that a prediction's weights come from."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

MODEL, HISTORY = "model", "history.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Losses by optimiser step.

    Attributes:
        path: The file.
        training: (step, loss), mean over the steps since the entry before.
        validation: (step, loss) over the validation split.
        dropped: Logged losses that are not finite numbers, and lines that are no log entry.
    """

    path: Path
    training: tuple[tuple[int, float], ...]
    validation: tuple[tuple[int, float], ...]
    dropped: int


def find_history(weights: str | None) -> Path | None:
    """The history file of a run folder or of its `model` folder; `None` if the weights are not of a run."""
    if weights is None:
        return None
    folder = Path(weights)
    for run in (folder, folder.parent):
        if (run / HISTORY).is_file() and (run / MODEL).is_dir() and folder in (run, run / MODEL):
            return run / HISTORY
    return None


def read_history(path: Path) -> History:
    """Reads a log history: one JSON object a line, with `step` and `loss` or `eval_loss`."""
    found: dict[str, list[tuple[int, float]]] = {"loss": [], "eval_loss": []}
    dropped = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            dropped += 1
            continue
        for key, points in found.items():
            value = entry.get(key)
            if key not in entry:
                continue
            if isinstance(value, int | float) and math.isfinite(value):
                points.append((entry["step"], float(value)))
            else:
                dropped += 1
    return History(path=path, training=tuple(found["loss"]), validation=tuple(found["eval_loss"]), dropped=dropped)
