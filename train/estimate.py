"""Memory and operations of a run, worked out before it starts; no weights are loaded.

    estimate = estimate_run(recipe, workload_of(measured, steps, packed=collator.packs))
    for line in estimate.lines():
        say(line)

The memory is that of one process at the peak of its largest forward and backward pass. Allocators cut memory into
blocks and lose some of it, so a run that needs more than 90 % of what is free is called tight. Time is not
guessed: `train.pace` takes it from the first steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.processes import process_state
from recipes.schema import Recipe
from train.advice import Advice, advise
from train.data import Measured
from train.device_memory import current_launch, memory_for_run
from train.memory import Launch, Part
from train.prepare import read_feed
from train.sizing import ModelSize, Workload

TIGHT = 0.9
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run needs.

    Attributes:
        parameters: Group -> (trained, all) parameter counts.
        parts: Memory of one process, by what it is for.
        batch: The largest forward pass, in words.
        available: Bytes that the process may use.
        device: Type of the device, `cuda` or `cpu`.
        step_tokens: Tokens of a mean optimiser step, all processes together, images included.
        step_images: Image tokens among them.
        step_flops: Floating-point operations of a mean optimiser step, all processes together.
        run_flops: Those of the whole run.
        advice: What to change, least harm first; empty where the run fits.
    """

    parameters: dict[str, tuple[int, int]]
    parts: tuple[Part, ...]
    batch: str
    available: int
    device: str
    step_tokens: float
    step_images: float
    step_flops: float
    run_flops: float
    advice: tuple[Advice, ...]

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def fits(self) -> bool:
        """Whether the memory suffices with room to spare."""
        return self.total <= TIGHT * self.available

    def lines(self) -> list[str]:
        """The estimate as text."""
        trained, every = (sum(pair[i] for pair in self.parameters.values()) for i in (0, 1))
        lines = [
            f"  {group:<10} {part:>13,} of {whole:>13,} parameters trained"
            for group, (part, whole) in self.parameters.items()
        ]
        lines.append(f"  {'all':<10} {trained:>13,} of {every:>13,} ({100 * trained / every:.2f} %)")
        lines.append(f"memory of one process at its peak, estimated for {self.batch}:")
        lines += [f"  {part.name:<36} {_amount(part.bytes)}" for part in self.parts]
        lines.append(f"  {'all':<36} {_amount(self.total)} of {_amount(self.available).strip()} free ({self.device})")
        lines.append(
            f"mean step, padding left out: {self.step_tokens:,.0f} tokens, {self.step_images:,.0f} of them of images; "
            f"{self.step_flops:.3g} operations, {self.run_flops:.3g} in all"
        )
        if self.fits:
            return lines
        lines.append(
            "this is tight; it would take:" if self.total <= self.available else "this will not fit; it takes:"
        )
        lines += [
            f"  {'and ' if number else ''}{item.change} -> {_amount(item.bytes).strip()}"
            for number, item in enumerate(self.advice)
        ]
        if not self.advice or self.advice[-1].bytes > TIGHT * self.available:
            lines.append("  and then still more memory or a smaller model")
        return lines


def _amount(count: int) -> str:
    return f"{count / GIB:9.2f} GiB" if count >= GIB / 10 else f"{count / 1024**2:9.2f} MiB"


def compare_peak(estimate: Estimate, peak: int) -> str:
    """One line for the end of a run: the measured peak beside the estimate, in bytes."""
    parts = (
        (" (all that it grew by, libraries and data too)", " (the model's part)")
        if estimate.device == "cpu"
        else ("", "")
    )
    return (
        f"peak memory of a process on {estimate.device}: {_amount(peak).strip()} measured{parts[0]}, "
        f"{_amount(estimate.total).strip()} estimated{parts[1]}"
    )


def estimate_run(recipe: Recipe, workload: Workload, launch: Launch | None = None) -> Estimate:
    """What a run needs on this machine.

    Args:
        recipe: The run.
        workload: What it is fed.
        launch: Processes and what they share; those of this launch by default.

    Raises:
        RecipeError: The checkpoint's config cannot be read or is of another family.
    """
    launch = launch or current_launch()
    device = process_state().device.type
    model = ModelSize.of(recipe, on_cpu=device == "cpu")
    available = memory_for_run()
    step = model.step_flops(recipe, workload, launch)
    return Estimate(
        parameters=model.parameters,
        parts=tuple(model.parts(recipe, workload, launch)),
        batch=model.describe_batch(recipe, workload, launch),
        available=available,
        device=device,
        step_tokens=workload.mean_step(recipe, launch, lambda length: length.total),
        step_images=workload.mean_step(recipe, launch, lambda length: length.images),
        step_flops=step,
        run_flops=step * workload.steps,
        advice=advise(model, recipe, workload, launch, limit=int(TIGHT * available)),
    )


def workload_of(measured: Measured, steps: int, *, packed: bool) -> Workload:
    """What a measured training split feeds a run of so many optimiser steps; opens no image.

    Args:
        measured: The split.
        steps: Optimiser steps of the run.
        packed: Whether the collator packs.
    """
    return Workload(measured.lengths, steps, [sample.images for sample in measured.samples] if packed else ())


def estimate_recipe(recipe: Recipe) -> Estimate:
    """What a recipe's run needs on this machine: measures the training split, loads no weights.

    Raises:
        UserError: Whatever would stop the run before its first step in dataset, processor or config.
    """
    feed = read_feed(recipe)
    return estimate_run(recipe, workload_of(feed.train, feed.steps, packed=feed.collator.packs))
