"""Memory of training at its peak, at equal questions a step: shared and separate, in a plain loop and with TRL.

    python -m perf memory [--cases 5x20 9x60] [--rounds 3] [--out FOLDER]

`9x60` is nine questions about a volume of 60 slices of 64 tokens, in one optimiser step, which is the whole job (that of
`perf.job`). Sides:

    shared       the questions in one row, their slices once
    batch        separate, the questions of a step in one forward pass
    accumulated  separate, a forward pass for each question
    plain, trl   accumulated too, the baselines of `perf.train`

`process` is the growth of the process above what it took with the model loaded, everything included, in MiB; it is the
median of several rounds, each in a process of its own. `tensors` is the most that PyTorch's tensors took at once, as its
profiler counts them in a second run, model and what was there before left out. Ratios are those of `shared`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from perf.comparison import Case, Comparison, Results, markdown
from perf.rounds import spread
from perf.workload import Workload

SIDES = ("shared", "batch", "accumulated", "plain", "trl")
CASES = {
    "5x20": Case(task="volumes", size=Workload(questions=5), sides=SIDES),
    "9x60": Case(task="volumes", size=Workload(questions=9, slices=60, group=9), sides=SIDES),
}
FIGURES = ("process", "tensors")
HEAD = ("case", "side", "process MiB", "tensors MiB", "process : shared", "tensors : shared")


def _figures(case: Case, found: Results) -> dict[str, Any]:  # noqa: ARG001 - as other comparisons
    spreads = {
        side: {key: spread([each[key] for each in rounds], 1) for key in FIGURES} for side, rounds in found.items()
    }
    shared = spreads["shared"]
    sides = {
        side: {
            **{key: asdict(each[key]) for key in FIGURES},
            **{f"{key}_ratio": each[key].median / max(shared[key].median, 0.1) for key in FIGURES},
            "losses": found[side][0]["losses"],
        }
        for side, each in spreads.items()
    }
    return {"sides": sides}


def _text(figures: Mapping[str, Any]) -> str:
    rows = [
        (
            name,
            side,
            *(f"{each[key]['median']:,.1f}" for key in FIGURES),
            *(f"{each[f'{key}_ratio']:.2f}" for key in FIGURES),
        )
        for name, case in figures.items()
        for side, each in case["sides"].items()
    ]
    return markdown(HEAD, rows)


run_memory = Comparison("memory", _figures, _text)
