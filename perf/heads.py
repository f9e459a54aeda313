"""What the full head costs: cross-entropy from logits at every position, or at supervised positions only.

    python -m perf heads

The baseline computes logits float32[B, L, V] and ignores what is not supervised, as transformers' own loss does;
ours (`logits_to_keep` and `train.loss`) computes float32[S, V] for the S supervised positions. Forward and backward
pass of head and loss alone, on random hidden states. Every pass runs in a process of its own, in alternating order;
memory is the growth of that process above weights and hidden states. A last process holds both and compares loss and
gradients. The last line is JSON: median seconds and peak MiB of each, their ratios, and the differences.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass

from tqdm import tqdm

from perf.rounds import MeasurementError, alternating, measured_apart

SIDES = ("full", "targets")
COMPARE = "compare"
FIX = "if memory ran out (-9), lower --batch, --length or --vocabulary"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSize:
    """Shape of the measured head.

    Attributes:
        batch: Samples, B.
        length: Tokens of each sample, L.
        supervised: Supervised tokens of each sample, at its end.
        hidden: Width of the hidden states.
        vocabulary: Rows of the head, V.
    """

    batch: int = 4
    length: int = 512
    supervised: int = 20
    hidden: int = 512
    vocabulary: int = 151_936

    def __post_init__(self) -> None:
        if not 0 < self.supervised < self.length:
            raise MeasurementError(
                f"{self.supervised} supervised tokens do not fit into samples of {self.length}",
                where="--supervised",
                fix="give at least 1 and fewer than --length: the first token cannot be predicted",
            )


def run_heads(size: HeadSize, *, rounds: int) -> None:
    """Measures and prints.

    Args:
        size: Shape of the head.
        rounds: Measurements of each side.

    Raises:
        MeasurementError: A process was ended, most likely because memory ran out.
    """
    results: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for side in tqdm(alternating(SIDES, rounds), desc="measuring", unit="pass"):
        results[side].append(measured_apart("heads", side, asdict(size), fix=FIX))
    differences = measured_apart("heads", COMPARE, asdict(size), fix=FIX)
    seconds = {side: statistics.median(result["seconds"] for result in results[side]) for side in SIDES}
    peaks = {side: statistics.median(result["peak_mib"] for result in results[side]) for side in SIDES}
    for side in SIDES:
        print(f"{side:<8} {seconds[side]:8.3f} s   peak {peaks[side]:8.1f} MiB")
    faster, smaller = seconds["full"] / seconds["targets"], peaks["full"] / max(peaks["targets"], 1.0)
    print(f"logits at supervised positions only: {faster:.1f} times faster, {smaller:.1f} times less memory")
    print(f"relative difference: loss {differences['loss']:.1e}, gradients {differences['gradients']:.1e}")
    figures = {
        "benchmark": "heads",
        "rounds": rounds,
        **asdict(size),
        "seconds": {side: round(value, 4) for side, value in seconds.items()},
        "peak_mib": {side: round(value, 1) for side, value in peaks.items()},
        "faster": round(faster, 2),
        "smaller": round(smaller, 2),
        "difference": differences,
    }
    print(json.dumps(figures))
