"""How fast questions become batches: pictures read, decoded and prepared, texts turned into tokens.

    python -m perf load [--cases volumes pairs] [--rounds 3] [--out FOLDER]

The rows are those of `perf.workload`, the batches those of training, with targets. Sides:

    stock      the stock processor, question by question in the main process, pictures opened for each
    separate   our collator, in the main process too
    shared     questions about the same pictures in one batch, their pictures opened once
    workers-2  `shared` in two worker processes, which read ahead
    pixels     `shared` with `vision_cache: pixels`, when all pictures are kept on the disk as they were prepared
    cached     `shared` with `vision_cache: memory`, when the features of all pictures are kept

Each has been through the rows twice before: files are in the system's memory, workers have started, what is kept is there
and verified. A model computes nothing meanwhile: this is how fast it could be fed. `pictures/s` counts those that are opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from perf.comparison import Case, Comparison, Results, markdown
from perf.rounds import spread
from perf.workload import Workload

SIDES = ("stock", "separate", "shared", "workers-2", "pixels", "cached")
CASES = {
    "volumes": Case(task="volumes", size=Workload(questions=40), sides=SIDES),
    "pairs": Case(task="pairs", size=Workload(questions=80), sides=SIDES),
}
FIGURES = ("questions_per_second", "pictures_per_second")
HEAD = ("case", "side", "questions/s", "pictures/s", "x stock")


def _figures(case: Case, found: Results) -> dict[str, Any]:  # noqa: ARG001 - as other comparisons
    spreads = {
        side: {key: spread([each[key] for each in rounds], 2) for key in FIGURES} for side, rounds in found.items()
    }
    stock = spreads["stock"][FIGURES[0]].median
    sides = {
        side: {
            **{key: asdict(value) for key, value in each.items()},
            "times_stock": round(each[FIGURES[0]].median / stock, 2),
        }
        for side, each in spreads.items()
    }
    return {"sides": sides}


def _text(figures: Mapping[str, Any]) -> str:
    rows = [
        (name, side, *(f"{each[key]['median']:,.1f}" for key in FIGURES), f"{each['times_stock']:.2f}")
        for name, case in figures.items()
        for side, each in case["sides"].items()
    ]
    return markdown(HEAD, rows)


run_load = Comparison("load", _figures, _text)
