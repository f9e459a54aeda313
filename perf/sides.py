"""The sides of `train` and `infer` by name; each is measured in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from perf.baselines import answer_plain, train_plain, train_trl
from perf.infer import BATCHES
from perf.ours import answer_ours, train_ours
from perf.stopwatch import Job

SIDES: dict[str, Callable[[Job], dict[str, Any]]] = {
    "plain": train_plain,
    "trl": train_trl,
    "separate": partial(train_ours, share=False),
    "shared": partial(train_ours, share=True),
    "ours": answer_ours,
    **{f"generate-{batch}": partial(answer_plain, batch=batch) for batch in BATCHES},
}


def run_side(side: str, job: Job) -> None:
    """Measures one side and prints the result as JSON."""
    print(json.dumps(SIDES[side](job)))
