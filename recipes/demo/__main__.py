"""`python -m recipes.demo RESULT.json [--strict]`: a demo's table of six systems, and what it must show.

The claims: on each claimed metric (paired scans: yes/no balanced accuracy and localization IoU@.5; MRI volumes: A-Scores
and V-Scores of both levels) the tuned model, the first system of the result, beats the base before tuning and every control
by a margin, and the bootstrap interval over patients or volumes of each paired difference excludes zero. With `--strict` a
claim that does not hold gives exit status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from recipes.errors import UserError, run_command


class Claim(NamedTuple):
    """The tuned model is better by a margin."""

    task: str
    metric: str
    margin: float
    title: str


CLAIMS = {
    "scintiground": (
        Claim("grounding", "iou_at_0.5", 0.20, "localization IoU@.5"),
        Claim("vqa", "balanced_accuracy", 0.15, "yes/no balanced accuracy"),
    ),
    "sgmri": (
        Claim("image_detection", "a_score", 0.10, "slice detect. A"),
        Claim("image_classification", "a_score", 0.10, "slice class. A"),
        Claim("image_localization", "v_score", 0.20, "slice local. V"),
        Claim("volume_detection", "a_score", 0.10, "volume detect. A"),
        Claim("volume_classification", "a_score", 0.10, "volume class. A"),
        Claim("volume_counting", "a_score", 0.10, "volume count. A"),
        Claim("volume_localization", "v_score", 0.20, "volume local. V"),
    ),
}
_INTERVALS_UP_TO = 2


def main() -> int:
    """Prints the table and the claims."""
    parser = argparse.ArgumentParser(prog="python -m recipes.demo", description=__doc__)
    parser.add_argument("result", type=Path, help="what `python -m eval --json` wrote")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a claim does not hold")
    arguments = parser.parse_args()
    result = json.loads(arguments.result.read_text(encoding="utf-8"))
    print("\n".join(table(result)))
    lines = claims(result)
    print("\n".join(lines))
    return 1 if arguments.strict and any(line.startswith("NOT SHOWN") for line in lines) else 0


def claims_of(result: dict[str, Any]) -> tuple[Claim, ...]:
    """The claims on the result's benchmark.

    Raises:
        UserError: There is no demo of that benchmark.
    """
    benchmark = result["dataset"]["benchmark"]
    if benchmark not in CLAIMS:
        raise UserError(f"no demo claims anything of {benchmark}", fix=f"claims are on {', '.join(CLAIMS)}")
    return CLAIMS[benchmark]


def table(result: dict[str, Any]) -> list[str]:
    """One row per system: value of each claimed metric, with its 95 % interval where there are few."""
    claimed = claims_of(result)
    few = len(claimed) <= _INTERVALS_UP_TO
    width = 28 if few else 2 + max(len(claim.title) for claim in claimed)
    head = f"{'system':<24}" + "".join(f"{claim.title:>{width}}" for claim in claimed)
    lines = [head, "-" * len(head)]
    for system in result["systems"]:
        cells = [_cell(_metric(system, claim), interval=few) for claim in claimed]
        lines.append(f"{system['name']:<24}" + "".join(f"{cell:>{width}}" for cell in cells))
    return lines


def claims(result: dict[str, Any]) -> list[str]:
    """One line per claim and opponent: difference, interval, and whether it is shown.

    Raises:
        UserError: The tuned model is compared with no other system on a claimed metric.
    """
    lines = []
    tuned = result["systems"][0]["name"]
    for claim in claims_of(result):
        found = [
            each
            for each in result["comparisons"]
            if (each["first"], each["task"], each["metric"]) == (tuned, claim.task, claim.metric)
        ]
        if not found:
            raise UserError(
                f"no system is compared with {tuned!r} on {claim.metric} of task {claim.task}: the claim cannot be judged",
                fix="give `python -m eval` the tuned model's predictions first and at least one other system",
            )
        for difference in found:
            shown = (difference["difference"] or 0) >= claim.margin and (difference["low"] or 0) > 0
            lines.append(
                f"{'shown' if shown else 'NOT SHOWN':<9}  {claim.title}: {tuned} - {difference['second']} "
                f"{_signed(difference['difference'])} [{_signed(difference['low'])}, {_signed(difference['high'])}], "
                f"at least {claim.margin:.2f}"
            )
    return lines


def _metric(system: dict[str, Any], claim: Claim) -> dict[str, Any]:
    return next(item for item in system["metrics"] if (item["task"], item["metric"]) == (claim.task, claim.metric))


def _signed(value: float | None) -> str:
    return "not defined" if value is None else f"{value:+.3f}"


def _cell(metric: dict[str, Any], *, interval: bool) -> str:
    if metric["value"] is None:
        return "not defined"
    return f"{metric['value']:.3f}" + (f" [{metric['low']:.3f}, {metric['high']:.3f}]" if interval else "")


if __name__ == "__main__":
    sys.exit(run_command(main))
