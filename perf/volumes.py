"""What volumes take: a training step and an answer, on our path and on the stock one, by the number of slices.

    python -m perf volumes

Trains a small random Qwen3-VL in full, vision tower and projector frozen as in SGMRI-VQA's published run, one volume a
step, and asks it one question, with a quarter, half and all of `--slices`; float32 on the CPU. Ours is what `python -m
train` and `python -m infer` do: collator, `GroundedTrainer` with logits at supervised positions only, engine `hf`. The
baseline, `stock`, gives slices, prompt and target to `Qwen3VLProcessor`, its labels to the model, whose own loss computes
logits float32[B, L, V] at every position, steps with AdamW in a plain loop, and answers with `generate`. Both see the
same slices in the same words.

Each measurement runs in a process of its own, sides and numbers of slices in alternating order. The seconds of a step
are from the end of the one before to its end, batches included, the first step not counted; those of an answer
include reading the slices. Memory is the growth of the process above what the loaded model takes: first by the answer,
then by training. Since an allocator keeps some of what was freed, the tensors of one more forward and backward pass are
counted too: their peak grows linearly if a slice takes as much from half to all slices as from a quarter to half. Our path goes on to all slices at `--large` pixels. The last line is JSON: seconds, peak MiB and their ratios for each
number of slices, MiB of tensors per slice, and the differences of losses and answers.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from perf.rounds import MeasurementError, alternating, measured_apart, spread

SIDES = ("stock", "ours")
LARGE = "large"
FIGURES = ("step_seconds", "step_mib", "tensor_mib", "answer_seconds", "answer_mib")
BLOCK = 32  # pixels of a slice's side that make a token
FIX = "if memory ran out (-9), lower --slices or --vocabulary"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSize:
    """What is trained and asked.

    Attributes:
        slices: Slices of the largest volume.
        pixels: Side of a slice, a multiple of 32: 256 gives 64 tokens.
        large: Side of the slices that only our path sees: 320 gives 100 tokens.
        steps: Steps of a run; the first is not timed.
        answer: Tokens of an answer at most.
        hidden: Width of both towers, a multiple of 32.
        layers: Blocks of both towers.
        vocabulary: Rows of embeddings and head.
    """

    slices: int = 60
    pixels: int = 256
    large: int = 320
    steps: int = 2
    answer: int = 8
    hidden: int = 64
    layers: int = 2
    vocabulary: int = 8192

    def __post_init__(self) -> None:
        if self.steps < 2:
            raise MeasurementError("one step alone is not timed", where="--steps", fix="give at least 2")
        for name in ("pixels", "large"):
            if getattr(self, name) % BLOCK:
                raise MeasurementError(
                    f"slices of {getattr(self, name)} pixels are no whole tokens",
                    where=f"--{name}",
                    fix="give a multiple of 32",
                )

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of slices that are measured."""
        return self.slices // 4, self.slices // 2, self.slices


def run_volumes(size: VolumeSize, *, rounds: int) -> None:
    """Measures and prints.

    Args:
        size: What is trained and asked.
        rounds: Measurements of each side and number of slices.

    Raises:
        MeasurementError: There are too few slices, or a process was ended, most likely because memory ran out.
    """
    if not size.counts[0]:
        raise MeasurementError(f"a quarter of {size.slices} slices is none", where="--slices", fix="give at least 4")
    cases = {f"{side} {count}": (side, replace(size, slices=count)) for count in size.counts for side in SIDES}
    order = [*alternating(list(cases), rounds), LARGE]
    cases[LARGE] = ("ours", replace(size, pixels=size.large))
    results: dict[str, list[dict[str, Any]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, size)
        for case in tqdm(order, desc="measuring", unit="run"):
            side, of = cases[case]
            results[case].append(measured_apart("volumes", side, {**asdict(of), "folder": folder}, fix=FIX))
    first = {case: found[0] for case, found in results.items()}
    largest = first.pop(LARGE)
    spreads = {case: {key: spread([each[key] for each in results[case]], 4) for key in FIGURES} for case in first}
    medians = {case: {key: value.median for key, value in found.items()} for case, found in spreads.items()}
    tokens = {count: first[f"ours {count}"]["tokens"] for count in size.counts}
    ratios = {count: _ratios(medians[f"stock {count}"], medians[f"ours {count}"]) for count in size.counts}
    per_slice = {
        side: growth(size.counts, [medians[f"{side} {count}"]["tensor_mib"] for count in size.counts]) for side in SIDES
    }
    losses, answers = differences(size, first)
    _print_table(tokens, medians, ratios)
    quarter, half, whole = size.counts
    for side, (lower, upper) in per_slice.items():
        print(
            f"{side:<6} the tensors of a pass take {lower:.3f} MiB per slice from {quarter} to {half} slices, "
            f"{upper:.3f} from {half} to {whole}: ratio {upper / lower:.3f}"
        )
    print(
        f"ours   {whole} slices of {size.large} x {size.large} pixels, {largest['tokens']:,} tokens: "
        f"{largest['step_seconds']:.3f} s/step, peak {largest['step_mib']:.1f} MiB; "
        f"answer {largest['answer_seconds']:.3f} s, peak {largest['answer_mib']:.1f} MiB"
    )
    print(f"largest difference of a loss: {losses:.1e}; answers that differ: {answers} of {len(size.counts)}")
    figures = {
        "benchmark": "volumes",
        "rounds": rounds,
        **asdict(size),
        "tokens": tokens,
        "measured": {case: {key: asdict(value) for key, value in found.items()} for case, found in spreads.items()},
        "ratios": ratios,
        "mib_per_slice": per_slice,
        "linearity": {side: upper / lower for side, (lower, upper) in per_slice.items()},
        "large_volume": largest,
        "difference": {"loss": losses, "answers": answers},
    }
    print(json.dumps(figures))


def _ratios(stock: Mapping[str, float], ours: Mapping[str, float]) -> dict[str, float]:
    return {key: round(stock[key] / max(ours[key], 1e-4), 2) for key in FIGURES}


def growth(counts: Sequence[int], peaks: Sequence[float]) -> list[float]:
    """Memory per slice between neighbouring numbers of slices."""
    pairs = zip(counts, counts[1:], peaks, peaks[1:], strict=False)
    return [(after - before) / (more - fewer) for fewer, more, before, after in pairs]


def differences(size: VolumeSize, first: Mapping[str, Mapping[str, Any]]) -> tuple[float, int]:
    """Largest difference of a loss between both sides over all numbers of slices, and how many answers differ."""
    pairs = [(first[f"stock {count}"], first[f"ours {count}"]) for count in size.counts]
    losses = [abs(a - b) for stock, ours in pairs for a, b in zip(stock["losses"], ours["losses"], strict=True)]
    return max(losses), sum(stock["answer"] != ours["answer"] for stock, ours in pairs)


def _print_table(
    tokens: Mapping[int, int], medians: Mapping[str, Mapping[str, float]], ratios: Mapping[int, Mapping[str, float]]
) -> None:
    heads = ("s/step", "peak MiB", "tensors", "s/answer", "peak MiB")
    print(f"{'slices':>6} {'tokens':>7} {'side':<6}" + "".join(f"{head:>10}" for head in heads))
    for count, length in tokens.items():
        for side in SIDES:
            values = (medians[f"{side} {count}"][key] for key in FIGURES)
            print(f"{count:>6} {length:>7,} {side:<6}" + "".join(f"{value:>10.3f}" for value in values))
        print(f"{'':>14} {'ratio':<6}" + "".join(f"{ratios[count][key]:>10.2f}" for key in FIGURES))


def write_inputs(folder: Path, size: VolumeSize) -> None:
    """Writes the random model and, for every number of slices and pixels that is measured, a dataset to `folder`."""
    from models.tiny import TinySize, build_tiny_qwen3_vl
    from perf.paligemma_step import enlarge_vocabulary
    from perf.volumes_step import QUESTION, TARGET, write_volumes

    for count in size.counts:
        write_volumes(folder, slices=count, pixels=size.pixels, steps=size.steps)
    write_volumes(folder, slices=size.slices, pixels=size.large, steps=size.steps)
    form = TinySize(hidden=size.hidden, layers=size.layers, vision_hidden=size.hidden, vision_layers=size.layers)
    build_tiny_qwen3_vl(folder / "model", [QUESTION, TARGET], form, seed=0)
    enlarge_vocabulary(folder / "model", size.vocabulary)
