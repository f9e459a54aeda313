"""Training on volumes and pairs: ours, a plain loop of transformers and PEFT, and TRL's `SFTTrainer`.

    python -m perf train [--cases volumes-64 pairs] [--rounds 5] [--out FOLDER]

Every side does the job of `perf.job` on the same rows with the same random model, in a process of its own with one
thread, in balanced order. `plain` opens, prepares and passes question by question and computes logits at every
position (`perf.baselines`); `shared` is what `job` measures, `separate` the same without `batch.share_images`, question
by question.

The table has the median seconds of a question with their range, the processor's seconds, the peak of the process in
MiB, how many times longer plain loop and TRL take (by either time), and how much of the ideal is reached: of
(5N + 5T) / (N + 5T) for N tokens up to the end of the last picture, which five questions share, and T after it. The
losses of all sides are compared with those of the plain loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from perf.comparison import Case, Comparison, Results, cells, faster, markdown, spreads, times
from perf.workload import GROUP, Workload

SIDES = ("plain", "trl", "separate", "shared")
BASELINES = ("plain", "trl")
CASES = {
    "volumes-64": Case(task="volumes", size=Workload(), sides=SIDES),
    "volumes-100": Case(task="volumes", size=Workload(pixels=320), sides=("plain", "trl", "shared")),
    "tokens-80": Case(task="volumes", size=Workload(tokens=80), sides=("plain", "shared")),
    "tokens-120": Case(task="volumes", size=Workload(tokens=120), sides=("plain", "shared")),
    "tokens-200": Case(task="volumes", size=Workload(tokens=200), sides=("plain", "shared")),
    "pairs": Case(task="pairs", size=Workload(questions=40), sides=SIDES),
}
HEAD = ("case", "side", "s/question", "CPU s", "peak MiB", "x plain", "CPU", "x TRL", "CPU", "of ideal")


def _figures(case: Case, found: Results) -> dict[str, Any]:
    measured = spreads(found)
    ours = next(rounds[0] for rounds in found.values() if "own" in rounds[0])
    best = ideal(ours["shared"], ours["own"], GROUP) if case.task == "volumes" else None
    sides = {
        side: {
            **{key: asdict(value) for key, value in measured[side].items()},
            "losses": found[side][0]["losses"],
            **{f"times_{baseline}": faster(measured, side, baseline) for baseline in BASELINES},
        }
        for side in case.sides
    }
    return {
        "shared_tokens": ours["shared"],
        "own_tokens": ours["own"],
        "ideal": best,
        "sides": sides,
        "loss_difference": loss_difference({side: each["losses"] for side, each in sides.items()}),
    }


def ideal(shared: float, own: float, questions: int) -> float:
    """How many times fewer tokens there are if questions share what they have in common.

    Args:
        shared: Tokens that are common to all questions.
        own: Further tokens of each.
        questions: How many share.
    """
    return questions * (shared + own) / (shared + questions * own)


def loss_difference(losses: Mapping[str, Sequence[float]]) -> float:
    """Largest difference of a step's loss from the plain loop's over all sides."""
    return max(abs(a - b) for each in losses.values() for a, b in zip(losses["plain"], each, strict=True))


def _text(figures: Mapping[str, Any]) -> str:
    rows = [row for name, each in figures.items() for row in _rows(name, each)]
    worst = max(each["loss_difference"] for each in figures.values())
    return f"{markdown(HEAD, rows)}\n\nlargest difference of a step's loss from the plain loop's: {worst:.1e}"


def _rows(name: str, figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for side, each in figures["sides"].items():
        plain, trl = (each[f"times_{baseline}"] for baseline in BASELINES)
        best = figures["ideal"] if side == "shared" else None
        reached = "" if best is None else f"{plain['seconds'] / best:.0%} of {best:.2f}"
        rows.append((name, side, *cells(each), *times(plain), *times(trl), reached))
    return rows


run_train = Comparison("train", _figures, _text)
