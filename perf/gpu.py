"""Training steps and answers of Qwen3-VL in its real sizes on one GPU, shared and separate, within a budget of time.

    perf/gpu.sh [--dry]          or    python -m perf gpu --out runs/gpu [--budget 420] [--dry]

Weights are random and made on the device in bfloat16; five questions of 20 words with answers as long are asked about
volumes of 20 or 50 slices of 100 tokens. Training is a step of `GroundedTrainer` on one batch that is prepared before and
repeated: the median of the steps behind two that warm up. With an adapter of rank 16 on bfloat16 (`lora`) or 4 bits
(`qlora`), or in full with a frozen vision tower (`full`: float32 weights and optimiser states, as our recipes have them;
skipped where these alone are more than the device has). 2 B without, 8 B with activation checkpointing. `separate` makes a
forward pass for each question. Answers are 32 tokens each, greedy, by our engine that shares prefixes and by `generate` on
the same five questions, preparing pictures included. `equal` compares loss and gradients of a step, shared and separate.

Utilisation is of the operations that the model asks for (`models.costs`; those that checkpointing repeats are left out)
and the device's dense bfloat16 peak (`perf.gpu_peaks`). Cases run in the order of their importance. Each is written to
`gpu.jsonl`, and the table `gpu.md` anew, as soon as it is there; when the budget is spent the rest is skipped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from perf.comparison import markdown
from perf.gpu_cases import GpuCase, all_cases
from recipes.errors import UserError

HEAD = ("case", "s/step or volume", "questions/s", "x separate", "tokens/s", "utilisation", "peak GiB", "notes")
TIME_RAN_OUT = "time ran out"
# What a library may raise in one case; the others are still measured.
_FAULTS = (UserError, RuntimeError, ValueError, TypeError, AttributeError, KeyError, ImportError, AssertionError)
Measure = Callable[[GpuCase], dict[str, Any]]


def run_gpu(out: Path, *, budget: float, dry: bool) -> None:
    """Measures, prints, and writes `gpu.jsonl` and `gpu.md`.

    Args:
        out: Folder for the files.
        budget: Seconds after which no further case begins.
        dry: Small shapes, to show that every case runs.
    """
    from perf.gpu_measure import Lab

    if dry:
        torch.set_num_threads(1)  # threads of tiny products wait for each other
    lab = Lab(dry=dry)
    title = f"{lab.name}, torch {torch.__version__}" + (
        ", a dry run: shapes are small, figures mean nothing" if dry else ""
    )
    measure_all(list(all_cases()), lab.measure, out, budget=budget, title=title, failed=lab.drop)


def measure_all(
    cases: Sequence[GpuCase],
    measure: Measure,
    out: Path,
    *,
    budget: float,
    title: str,
    failed: Callable[[], None] = lambda: None,
    now: Callable[[], float] = time.monotonic,
) -> list[dict[str, Any]]:
    """Measures cases in order until the budget is spent, and writes each result when it is there.

    Args:
        cases: The cases.
        measure: Measures one.
        out: Folder for the files.
        budget: Seconds after which no further case begins.
        title: First line of the table's file.
        failed: Called after a case that failed.
        now: Reads a clock, in seconds.

    Returns:
        What `gpu.jsonl` got: `case`, and its figures, or why there are none as `skipped` or `failed`.
    """
    out.mkdir(parents=True, exist_ok=True)
    lines = out / "gpu.jsonl"
    lines.write_text(json.dumps({"title": title}) + "\n", encoding="utf-8")
    start = now()
    results: list[dict[str, Any]] = []
    for case in tqdm(cases, desc="measuring", unit="case"):
        began = now()
        if began - start > budget:
            found: dict[str, Any] = {"skipped": TIME_RAN_OUT}
        else:
            try:
                found = measure(case)
            except _FAULTS as error:
                key = "skipped" if isinstance(error, UserError) else "failed"
                found = {key: f"{type(error).__name__}: {error}".splitlines()[0]}
            if "failed" in found or "skipped" in found:
                failed()
        results.append({"case": case.name, "took": now() - began, **found})
        with lines.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(results[-1]) + "\n")
        (out / "gpu.md").write_text(f"{title}\n\n{table(cases, results)}\n", encoding="utf-8")
    print(f"{title}\n\n{table(cases, results)}")
    return results


def table(cases: Iterable[GpuCase], results: Sequence[dict[str, Any]]) -> str:
    """The cases that have a result as a Markdown table."""
    by_name = {each["case"]: each for each in results}
    rows = []
    for case, found in zip(cases, results, strict=False):
        apart = by_name.get(case.name.replace(" shared", " separate"), {})
        ratio = found["questions_per_second"] / apart["questions_per_second"] if _both(found, apart) else None
        share = found.get("utilisation")
        rows.append(
            (
                case.name,
                _cell(found.get("seconds"), ".3f"),
                _cell(found.get("questions_per_second"), ".2f"),
                _cell(ratio if case.share else None, ".2f"),
                _cell(found.get("tokens_per_second"), ",.0f"),
                _cell(share, ".1%"),
                _cell(found.get("peak_gib"), ".1f"),
                _notes(found),
            )
        )
    return markdown(HEAD, rows)


def _both(found: dict[str, Any], apart: dict[str, Any]) -> bool:
    return "questions_per_second" in found and "questions_per_second" in apart


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _notes(found: dict[str, Any]) -> str:
    if "skipped" in found or "failed" in found:
        return ", ".join(f"{key}: {found[key]}" for key in ("skipped", "failed") if key in found)
    if "loss_difference" in found:
        gradient = found["gradient_difference"]
        return f"loss {found['loss_separate']:.4f}, differs by {found['loss_difference']:.1e}" + (
            "" if gradient is None else f", gradients by {gradient:.1e}"
        )
    other = found.get("other_texts")
    return "" if other is None else f"{other} of {found['texts']} texts differ"
