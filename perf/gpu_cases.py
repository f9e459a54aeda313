"""The cases of `perf.gpu`: what is measured, with which model, and the recipe behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from perf.stopwatch import NEW_TOKENS
from perf.workload import GROUP
from recipes.load import load_recipe
from recipes.schema import Recipe

Kind = Literal["lora", "qlora", "full", "float32"]
Work = Literal["equal", "train", "answer"]
WARM_STEPS = 2
STEPS = 6  # of a training case, the warm ones included
FEW = 4  # slices of the comparison in float32
ADAPTER = "{kind: lora, rank: 16, alpha: 32, dropout: 0.0, roles: [attention, mlp]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCase:
    """One measurement.

    Attributes:
        size: Key of `perf.gpu_models.RELEASED`.
        kind: How the model is trained: with an adapter on bfloat16 or 4 bits, in full with a frozen vision tower;
            `float32` is an adapter on a base in float32, computed without autocast.
        work: `equal` compares losses of shared and separate questions, `train` and `answer` take the time.
        slices: Of a volume.
        share: Whether questions about a volume are computed together; both for `equal`.
    """

    size: str
    kind: Kind
    work: Work
    slices: int
    share: bool = True

    @property
    def name(self) -> str:
        """All that, for tables."""
        how = "" if self.work == "equal" else " shared" if self.share else " separate"
        return f"{self.size} {self.kind} {self.work} {self.slices} slices{how}"

    @property
    def checkpointing(self) -> bool:
        """Whether activations are computed again in the backward pass: as our recipes of these sizes have it."""
        return self.size == "8B"

    def recipe(self) -> Recipe:
        """Five questions a step: of one volume in one row, or in a forward pass each."""
        size, accumulation = (GROUP, 1) if self.share else (1, GROUP)
        full = self.kind == "full"
        single = self.kind == "float32"
        return load_recipe(
            "demo/lora",
            [
                "data={dataset: none, validation: null}",
                "prompt.template=plain",
                "codec=plain",
                "images={min_pixels: 1024, max_pixels: 16777216}",
                f"model.dtype={'float32' if single else 'bfloat16'}",
                f"model.quantization={'nf4' if self.kind == 'qlora' else 'none'}",
                f"adapter={'{kind: full}' if full else ADAPTER}",
                f"freeze={'[vision, projector]' if full else '[]'}",
                f"batch={{size: {size}, accumulation: {accumulation}, loss_reduction: token, workers: 0}}",
                f"batch.share_images={json.dumps(self.share)}",
                f"train.precision={'fp32' if single else 'bf16'}",
                f"train.gradient_checkpointing={json.dumps(self.checkpointing)}",
                "train.learning_rate=1.0e-5",
                "train.schedule=constant",
                "train.min_learning_rate_ratio=0",
                "train.warmup_steps=0",
                f"train.max_steps={STEPS}",
                "train.log_steps=1000000",
                f"decoding={{max_new_tokens: {NEW_TOKENS}, batch_size: {GROUP}}}",
                f"decoding.share_images={json.dumps(self.share)}",
            ],
        )


def all_cases() -> Iterator[GpuCase]:
    """Every case, the most important ones first; those of one model behind one another, for it is made once."""
    yield GpuCase(size="2B", kind="lora", work="equal", slices=20)
    yield from _both("2B", "lora", ("train", "answer"), (20,))
    yield from _both("8B", "lora", ("train", "answer"), (20, 50))
    yield from _both("2B", "full", ("train",), (20, 50))
    yield from _both("8B", "qlora", ("train",), (20,))
    yield from _both("8B", "full", ("train",), (20,))
    yield GpuCase(size="2B", kind="float32", work="equal", slices=FEW)
    yield from _both("2B", "lora", ("train", "answer"), (50,))


def _both(size: str, kind: Kind, works: tuple[Work, ...], slices: tuple[int, ...]) -> Iterator[GpuCase]:
    for count, work, share in product(slices, works, (False, True)):
        yield GpuCase(size=size, kind=kind, work=work, slices=count, share=share)
