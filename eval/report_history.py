"""Finds and reads the history of the run that a prediction's weights come from: losses, scores of validations."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

MODEL, HISTORY = "model", "history.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Losses and scores by optimiser step.

    Attributes:
        path: The file.
        training: (step, loss), mean over the steps since the entry before.
        validation: (step, loss) over the validation split.
        scores: Metric of generated validation answers (`task/metric`, and `score` for the one that chooses the
            checkpoint) -> (step, value).
        dropped: Logged losses that are not finite numbers, and lines that are no log entry.
    """

    path: Path
    training: tuple[tuple[int, float], ...]
    validation: tuple[tuple[int, float], ...]
    scores: dict[str, tuple[tuple[int, float], ...]]
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
    """Reads a log history: one JSON object a line, with `step` and `loss`, `eval_loss` or scores."""
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
        for key, value in entry.items():
            if key not in found and key != "eval_score" and not (key.startswith("eval_") and "/" in key):
                continue
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(key, []).append((entry["step"], float(value)))
            else:
                dropped += 1
    training, validation = tuple(found.pop("loss")), tuple(found.pop("eval_loss"))
    scores = {key.removeprefix("eval_"): tuple(points) for key, points in found.items()}
    return History(path=path, training=training, validation=validation, scores=scores, dropped=dropped)
