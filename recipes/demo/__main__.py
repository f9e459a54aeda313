"""`python -m recipes.demo RESULT.json [--strict]`: the demo's six-row table and what it must show.

The claims: on closed questions (balanced accuracy) and on localization (IoU@.5) the tuned model, the first system of
the result, beats the base before tuning and every control by a margin, and the patient-bootstrap interval of each
paired difference excludes zero. With `--strict` a claim that does not hold gives exit status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from recipes.errors import UserError, run_command

# (task, metric, margin over every other system)
CLAIMS = (("grounding", "iou_at_0.5", 0.20), ("vqa", "balanced_accuracy", 0.15))
TITLES = {"iou_at_0.5": "localization IoU@.5", "balanced_accuracy": "yes/no balanced accuracy"}


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


def table(result: dict[str, Any]) -> list[str]:
    """One row per system: value and 95 % interval of each claimed metric."""
    head = f"{'system':<24}" + "".join(f"{TITLES[metric]:>28}" for _, metric, _ in CLAIMS)
    lines = [head, "-" * len(head)]
    for system in result["systems"]:
        cells = [_cell(_metric(system, task, metric)) for task, metric, _ in CLAIMS]
        lines.append(f"{system['name']:<24}" + "".join(f"{cell:>28}" for cell in cells))
    return lines


def claims(result: dict[str, Any]) -> list[str]:
    """One line per claim and opponent: difference, interval, and whether it is shown.

    Raises:
        UserError: The tuned model is compared with no other system on a claimed metric.
    """
    lines = []
    tuned = result["systems"][0]["name"]
    for task, metric, margin in CLAIMS:
        found = [
            each
            for each in result["comparisons"]
            if (each["first"], each["task"], each["metric"]) == (tuned, task, metric)
        ]
        if not found:
            raise UserError(
                f"no system is compared with {tuned!r} on {metric} of task {task}: the claim cannot be judged",
                fix="give `python -m eval` the tuned model's predictions first and at least one other system",
            )
        for difference in found:
            shown = (difference["difference"] or 0) >= margin and (difference["low"] or 0) > 0
            lines.append(
                f"{'shown' if shown else 'NOT SHOWN':<9}  {TITLES[metric]}: {tuned} - {difference['second']} "
                f"{_signed(difference['difference'])} [{_signed(difference['low'])}, {_signed(difference['high'])}], "
                f"at least {margin:.2f}"
            )
    return lines


def _metric(system: dict[str, Any], task: str, metric: str) -> dict[str, Any]:
    return next(item for item in system["metrics"] if (item["task"], item["metric"]) == (task, metric))


def _signed(value: float | None) -> str:
    return "not defined" if value is None else f"{value:+.3f}"


def _cell(metric: dict[str, Any]) -> str:
    if metric["value"] is None:
        return "not defined"
    return f"{metric['value']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}]"


if __name__ == "__main__":
    sys.exit(run_command(main))
