"""A recipe's model as sizes: which memory and which operations a workload costs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import mean
from types import ModuleType
from typing import TYPE_CHECKING

from collators.base import Length
from models.costs import MicroBatch, family_costs, longest_batch
from models.registry import family_module
from recipes.schema import Recipe
from train.memory import Launch, Part, Weight, numerics, read_weights, state_parts
from train.packed_load import PackedLoad

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True)
class Workload:
    """What a run is fed.

    Attributes:
        lengths: Token counts of each training sample.
        steps: Optimiser steps of the run.
        images: Image set of each sample where passes are packed; empty where they are not.
    """

    lengths: Sequence[Length]
    steps: int
    images: Sequence[Hashable] = ()

    def packed(self, recipe: Recipe, launch: Launch) -> PackedLoad | None:
        """The packed passes that a recipe makes of the samples; `None` if it packs none."""
        if not self.images:
            return None
        seed = recipe.train.seed
        return PackedLoad.of(self.lengths, self.images, recipe.batch, seed=seed, processes=launch.processes)

    def mean_step(self, recipe: Recipe, launch: Launch, count: Callable[[Length], float]) -> float:
        """What a mean optimiser step over all processes costs, by a formula for one sample."""
        packed = self.packed(recipe, launch)
        if packed is not None:
            return packed.mean_step(count)
        return step_samples(recipe, launch) * mean(map(count, self.lengths))


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The adapted model without its weights; holds for any batch, images, checkpointing, quantization and launch.

    Attributes:
        costs: The family's formulas.
        config: The checkpoint's config.
        weights: Every parameter tensor.
        parameters: Group -> (trained, all) parameter counts.
        on_cpu: Whether a CPU computes.
    """

    costs: ModuleType
    config: PreTrainedConfig
    weights: list[Weight]
    parameters: dict[str, tuple[int, int]]
    on_cpu: bool

    @classmethod
    def of(cls, recipe: Recipe, *, on_cpu: bool) -> ModelSize:
        """Builds the recipe's model on the `meta` device and reads it.

        Raises:
            RecipeError: The checkpoint's config cannot be read, is of another family, or the recipe freezes or
                adapts what the model does not have.
        """
        costs = family_costs(recipe.model.family)
        config, model = costs.skeleton(recipe)
        parameters = family_module(recipe.model.family).trainable_by_group(model)
        return cls(costs, config, read_weights(model, recipe), parameters, on_cpu)

    def parts(self, recipe: Recipe, workload: Workload, launch: Launch) -> list[Part]:
        """Memory of one process, by what it is for."""
        active = self.costs.activations(
            self.config, recipe, largest_batch(recipe, workload, launch), numerics(recipe, launch, on_cpu=self.on_cpu)
        )
        # They follow one another, so only the largest counts.
        passing = [
            Part("logits with their gradient", active.logits),
            Part("backward pass of one block", active.block),
            Part("gradient being added", self._largest_gradient(recipe, launch)),
        ]
        parts = [
            *state_parts(self.weights, recipe, launch),
            Part("inputs", active.inputs),
            Part("vision activations", active.vision),
            Part("language activations", active.language),
            max(passing, key=lambda part: part.bytes),
        ]
        return [part for part in parts if part.bytes]

    def _largest_gradient(self, recipe: Recipe, launch: Launch) -> int:
        """Bytes of the largest new gradient beside the sum that it is added to, where gradients are accumulated."""
        if recipe.batch.accumulation == 1:
            return 0
        largest = max((weight.count for weight in self.weights if weight.trained), default=0)
        return largest * (2 if launch.deepspeed and recipe.train.precision != "fp32" else 4)

    def total(self, recipe: Recipe, workload: Workload, launch: Launch) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts(recipe, workload, launch))

    def step_flops(self, recipe: Recipe, workload: Workload, launch: Launch) -> float:
        """Floating-point operations of a mean optimiser step over all processes."""
        return workload.mean_step(recipe, launch, lambda length: self.costs.flops(self.config, recipe, length))

    def describe_batch(self, recipe: Recipe, workload: Workload, launch: Launch) -> str:
        """The largest forward pass in words."""
        batch = largest_batch(recipe, workload, launch)
        kind = "packed row" if workload.images else "samples"
        return (
            f"{batch.samples} {kind} of {batch.width:,} tokens, {batch.images:,} of them of images and "
            f"{batch.supervised:,} supervised in all"
        )


def step_samples(recipe: Recipe, launch: Launch) -> int:
    """Samples of an optimiser step over all processes."""
    return recipe.batch.size * recipe.batch.accumulation * launch.processes


def largest_batch(recipe: Recipe, workload: Workload, launch: Launch) -> MicroBatch:
    """The largest forward pass that the recipe can make of the samples; of packed ones, that it makes in the first epoch."""
    packed = workload.packed(recipe, launch)
    if packed is not None:
        return packed.largest()
    samples = recipe.batch.size
    if recipe.batch.max_tokens is not None:
        room = recipe.batch.max_tokens // max(length.total for length in workload.lengths)
        samples = max(1, min(room, step_samples(recipe, launch)))
    return longest_batch(workload.lengths, samples)
