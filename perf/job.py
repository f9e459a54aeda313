"""One fixed job for comparison with other programs: LoRA training or answers of 32 tokens, on the CPU in float32.

    python -m perf job --data D --model M --task volumes --questions 10 --out figures.json [--infer]

`D` holds `volumes.plain.jsonl` and `pairs.plain.jsonl`: a line `{"id", "images": [paths], "question", "answer"}` for each
question, paths absolute or relative to `D`, questions about the same images with the same list. `M` is a Qwen3-VL;
`python -m perf workload` writes both.

Training is one pass over the first questions in order: LoRA of rank 8, alpha 16, without dropout, on the seven
projections of each block of the language model; five questions an optimiser step, the last may have fewer; the loss
is the mean over all answer and end tokens of a step; AdamW at a constant 1e-3 without decay, gradients clipped to 1.
With `--infer` each question is answered greedily in exactly 32 tokens.

The file gets `seconds_per_question` and `cpu_seconds_per_question` (reading, preparing and work; neither imports nor
loading the model and putting the adapter on), `peak_rss_mb` of the process in MiB, `loss` (mean over the optimiser
steps, `null` for answers) and `new_tokens` (of all answers, 0 for training). PyTorch runs as many threads as
`OMP_NUM_THREADS` says.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf.rounds import MeasurementError

if TYPE_CHECKING:
    from perf.stopwatch import Job

FIGURES = ("seconds_per_question", "cpu_seconds_per_question", "peak_rss_mb")


def run_job(job: Job, out: Path, *, infer: bool) -> None:
    """Does the job on our path and writes its figures.

    Raises:
        UserError: Rows, pictures or model cannot be read; the file cannot be written.
    """
    # Said before the work, which would be lost.
    if not out.parent.is_dir() or out.is_dir():
        raise MeasurementError(
            "the figures cannot be written", where=str(out), fix="name a file in a folder that exists"
        )
    from perf.ours import answer_ours, train_ours

    measured = answer_ours(job) if infer else train_ours(job, share=True)
    out.write_text(json.dumps(summary(measured)) + "\n", encoding="utf-8")


def summary(measured: dict[str, Any]) -> dict[str, float | int | None]:
    """What the file gets of what a side has measured."""
    losses = measured.get("losses")
    return {
        **{key: measured[key] for key in FIGURES},
        "loss": None if losses is None else statistics.fmean(losses),
        "new_tokens": sum(map(len, measured.get("answers", []))),
    }
