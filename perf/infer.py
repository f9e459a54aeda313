"""Answers about volumes and pairs: ours, and transformers' `generate` at several batch sizes.

    python -m perf infer [--cases volumes-64 pairs] [--rounds 5] [--out FOLDER]

Every side answers the same questions with the same random model, greedily and with exactly 32 tokens each, in a process
of its own with one thread, in balanced order. `generate-4` gives four questions at a time, padded on the left, to
`generate` (`perf.baselines`); ours is engine `hf`, which computes
what prompts about the same pictures have in common once (`decoding.share_images`).

The table has the median seconds of a question with their range, the processor's seconds, the peak of the process in
MiB, how many times longer `generate` takes at batch 1 and at its best batch size (by either time), and how many answers
differ from those at batch 1: in batches numbers round otherwise, and a tie may then be decided otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from perf.comparison import Case, Comparison, Results, cells, faster, markdown, spreads, times
from perf.rounds import Spread
from perf.workload import Workload

BATCHES = (1, 2, 4, 8, 16)
ALONE = "generate-1"
OURS = "ours"
SIDES = (*(f"generate-{batch}" for batch in BATCHES), OURS)
CASES = {
    "volumes-64": Case(task="volumes", size=Workload(questions=20), sides=SIDES),
    "volumes-100": Case(
        task="volumes", size=Workload(questions=20, pixels=320), sides=("generate-1", "generate-4", OURS)
    ),
    "pairs": Case(task="pairs", size=Workload(questions=40), sides=SIDES),
}
HEAD = ("case", "side", "s/question", "CPU s", "peak MiB", "x batch 1", "CPU", "x best", "CPU", "other texts")


def _figures(case: Case, found: Results) -> dict[str, Any]:
    measured = spreads(found)
    fastest = best_batch(measured)
    sides = {
        side: {
            **{key: asdict(value) for key, value in measured[side].items()},
            "times_alone": faster(measured, side, ALONE),
            "times_best": faster(measured, side, fastest),
            "new_tokens": sum(map(len, found[side][0]["answers"])),
            "other_texts": other_texts(found[ALONE][0]["answers"], found[side][0]["answers"]),
        }
        for side in case.sides
    }
    return {"best": fastest, "sides": sides}


def best_batch(measured: Mapping[str, Mapping[str, Spread]]) -> str:
    """The batch size of `generate` with the lowest median."""
    return min(measured.keys() - {OURS}, key=lambda side: measured[side]["seconds_per_question"].median)


def other_texts(answers: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> int:
    """How many answers differ."""
    return sum(list(a) != list(b) for a, b in zip(answers, others, strict=True))


def _text(figures: Mapping[str, Any]) -> str:
    return markdown(HEAD, [row for name, each in figures.items() for row in _rows(name, each)])


def _rows(name: str, figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            name,
            side,
            *cells(each),
            *times(each["times_alone"]),
            *times(each["times_best"]),
            f"{each['other_texts']} of {figures['questions']}",
        )
        for side, each in figures["sides"].items()
    ]


run_infer = Comparison("infer", _figures, _text)
