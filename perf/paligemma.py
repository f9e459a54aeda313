"""What a training step of PaliGemma takes: on our path, or with stock processor, Trainer and loss.

    python -m perf paligemma

Both sides train the same LoRA adapter on the same random model with the same optimiser and learning rate, on the same
samples in the same forward passes, in float32 on the CPU. Ours is what `python -m train` does: collator and
`GroundedTrainer`, with logits at supervised positions only. The baseline, `stock`, pastes both views with Pillow, gives
picture, prompt and answer to `PaliGemmaProcessor`, and its labels to the model in a plain `Trainer`, whose loss
computes logits float32[B, L, V] at every position. The model is narrow, but has PaliGemma's 256 image tokens
and 257,216 rows of embeddings and head; its texts are cut by a tokenizer trained on them, which uses few of the rows.

Each side runs in processes of its own, in alternating order. The seconds of a step are from the end of the one before
to its end, batches included, the first step not counted; memory is the growth of the process above what the loaded
model takes. Both losses are means over the supervised tokens of a step, however many forward passes it has
(transformers 5 counts the tokens of all of them). A last process trains the stock way on our canvases: from ours its
losses must not differ, while those of `stock` do by what its other resizing does to single pixels (`perf.canvas`). The
last line is JSON: seconds and peak MiB of each side, their ratios, and the differences of the losses of the first step
and, after as many updates, of the last.
"""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from perf.rounds import MeasurementError, alternating, measured_apart, spread

LOSSES = ("first_loss", "last_loss")
SIDES = ("stock", "ours")
CHECK = "check"
QUESTIONS = 3
TASKS = 3
PATCH = 14
FIX = "if memory ran out (-9), lower --batch or --vocabulary"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """What is trained, and how much of it.

    Attributes:
        batch: Samples of a forward pass.
        accumulation: Forward passes of a step.
        steps: Steps of a run; the first is not timed.
        pixels: Side of the pictures in pixels, a multiple of 14: 224 gives 256 image tokens.
        hidden: Width of both towers, a multiple of 32.
        layers: Blocks of both towers.
        vocabulary: Rows of embeddings and head.
    """

    batch: int = 2
    accumulation: int = 1
    steps: int = 3
    pixels: int = 224
    hidden: int = 256
    layers: int = 2
    vocabulary: int = 257_216

    def __post_init__(self) -> None:
        if self.steps < 2:
            raise MeasurementError("one step alone is not timed", where="--steps", fix="give at least 2")

    @property
    def samples(self) -> int:
        """Samples of a whole run."""
        return self.batch * self.accumulation * self.steps


def run_paligemma(size: StepSize, *, rounds: int) -> None:
    """Measures and prints.

    Args:
        size: What is trained.
        rounds: Measurements of each side.

    Raises:
        MeasurementError: A process was ended, most likely because memory ran out.
    """
    results: dict[str, list[dict[str, float]]] = {side: [] for side in (*SIDES, CHECK)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, size)
        options = {**asdict(size), "folder": folder}
        for side in tqdm([*alternating(SIDES, rounds), CHECK], desc="measuring", unit="run"):
            results[side].append(measured_apart("paligemma", side, options, fix=FIX))
    seconds = {side: spread([each["seconds"] for each in results[side]], 4) for side in SIDES}
    peaks = {side: spread([each["peak_mib"] for each in results[side]], 1) for side in SIDES}
    faster = seconds["stock"].median / seconds["ours"].median
    smaller = peaks["stock"].median / max(peaks["ours"].median, 1.0)
    ours, check, stock = (results[side][0] for side in ("ours", CHECK, "stock"))
    difference, resizing = ({key: abs(ours[key] - other[key]) for key in LOSSES} for other in (check, stock))
    for side in SIDES:
        time, peak = seconds[side], peaks[side]
        print(
            f"{side:<6} {time.median:8.3f} s/step ({time.lowest:.3f}-{time.highest:.3f})   "
            f"peak {peak.median:8.1f} MiB ({peak.lowest:.1f}-{peak.highest:.1f})"
        )
    print(f"our path: {faster:.2f} times faster, {smaller:.2f} times less memory")
    print(f"loss of step 1: {ours['first_loss']:.6f}, of step {size.steps}: {ours['last_loss']:.6f}")
    for name, values in (("arithmetic", difference), ("resizing", resizing)):
        print(f"difference by {name}: {values['first_loss']:.1e} and {values['last_loss']:.1e}")
    figures = {
        "benchmark": "paligemma",
        "rounds": rounds,
        **asdict(size),
        "seconds": {side: asdict(value) for side, value in seconds.items()},
        "peak_mib": {side: asdict(value) for side, value in peaks.items()},
        "faster": round(faster, 2),
        "smaller": round(smaller, 2),
        "loss": {key: ours[key] for key in LOSSES},
        "difference": difference,
        "resizing": resizing,
    }
    print(json.dumps(figures))


def write_inputs(folder: Path, size: StepSize) -> None:
    """Writes dataset and random model for both sides to `folder`: `data` and `model`."""
    from benchmarks.dataset import read_records
    from models.tiny_paligemma import TinyPaliGemmaSize, build_tiny_paligemma
    from perf.paligemma_step import enlarge_vocabulary
    from perf.phantoms import write_phantoms

    patients = math.ceil(size.samples / (QUESTIONS * TASKS)) + 1  # some questions come twice and are left out
    records = list(read_records(write_phantoms(folder, patients=patients, questions=QUESTIONS), "train"))
    texts = [f"{record.task}: {record.question} {record.target.text} {record.target.label}" for record in records]
    form = TinyPaliGemmaSize(
        side=size.pixels,
        patch=PATCH,
        hidden=size.hidden,
        layers=size.layers,
        vision_hidden=size.hidden,
        vision_layers=size.layers,
    )
    build_tiny_paligemma(folder / "model", texts, form, seed=0)
    enlarge_vocabulary(folder / "model", size.vocabulary)
