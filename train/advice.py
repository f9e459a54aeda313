"""What to change when a run does not fit, least harm first, with what each change gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from collators.base import Length
from recipes.schema import Recipe
from train.memory import Launch
from train.sizing import ModelSize, Workload

ZERO3 = "--use_deepspeed --deepspeed_config_file recipes/deepspeed/zero3.json"


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that saves memory.

    Attributes:
        change: What to set, as overrides or launch options.
        bytes: Memory of a process with this change and all those before it.
    """

    change: str
    bytes: int


@dataclass(frozen=True, slots=True)
class _Setup:
    """A run: what decides its memory."""

    recipe: Recipe
    workload: Workload
    launch: Launch


@dataclass(frozen=True, slots=True)
class _Change:
    """One change, in words and as a function."""

    text: str
    apply: Callable[[_Setup], _Setup]


def advise(model: ModelSize, recipe: Recipe, workload: Workload, launch: Launch, *, limit: int) -> tuple[Advice, ...]:
    """Changes that, one on top of the other, bring a run below a limit; none if it is there already.

    Exact changes come first (recomputing activations, smaller batches accumulated), then those that may change the
    result (smaller images, 4-bit weights), then more machinery (ZeRO-3). What turns out not to be needed beside a
    later change is left out.

    Args:
        model: The recipe's model.
        recipe: The run.
        workload: What it is fed.
        launch: Processes and what they share.
        limit: Bytes that a process may use.
    """
    start = _Setup(recipe, workload, launch)

    def total(changes: Sequence[_Change]) -> int:
        setup = _applied(start, changes)
        return model.total(setup.recipe, setup.workload, setup.launch)

    chosen: list[_Change] = []
    for options in (_checkpointing, _batch, _smaller_pictures, _nf4, _zero3):
        current = total(chosen)
        if current <= limit:
            break
        best: _Change | None = None
        for option in options(_applied(start, chosen), model):
            needed = total([*chosen, option])
            if needed < current:
                best, current = option, needed
            if current <= limit:
                break
        chosen += [best] if best is not None else []
    for change in chosen[-2::-1]:
        without = [other for other in chosen if other is not change]
        if total(without) <= limit:
            chosen = without
    return tuple(Advice(change.text, total(chosen[: number + 1])) for number, change in enumerate(chosen))


def _applied(setup: _Setup, changes: Sequence[_Change]) -> _Setup:
    return reduce(lambda changed, change: change.apply(changed), changes, setup)


def _set(setup: _Setup, section: str, **values: object) -> _Setup:
    """The setup with other values in a section of its recipe."""
    changed = getattr(setup.recipe, section).model_copy(update=values)
    return replace(setup, recipe=setup.recipe.model_copy(update={section: changed}))


def _checkpointing(setup: _Setup, model: ModelSize) -> Iterator[_Change]:  # noqa: ARG001 - the same for all options
    if not setup.recipe.train.gradient_checkpointing:
        yield _Change("train.gradient_checkpointing=true", lambda run: _set(run, "train", gradient_checkpointing=True))


def _batch(setup: _Setup, model: ModelSize) -> Iterator[_Change]:  # noqa: ARG001
    """Every smaller size that gives steps of as many samples, largest first; or fewer tokens in a pass.

    Passes that share images have two samples at least: the recipe schema refuses others.
    """
    batch = setup.recipe.batch
    if batch.max_tokens is not None:
        longest = max(length.total for length in setup.workload.lengths)
        for count in range(batch.max_tokens // longest - 1, 0, -1):
            tokens = count * longest
            text = f"batch.max_tokens={tokens}"
            yield _Change(text, lambda run, tokens=tokens: _set(run, "batch", max_tokens=tokens))  # type: ignore[misc]
        return
    samples = batch.size * batch.accumulation
    for size in range(batch.size - 1, int(batch.share_images), -1):
        if samples % size == 0:
            values = {"size": size, "accumulation": samples // size}
            text = f"batch.size={size} batch.accumulation={samples // size}"
            yield _Change(text, lambda run, values=values: _set(run, "batch", **values))  # type: ignore[misc]


def _smaller_pictures(setup: _Setup, model: ModelSize) -> Iterator[_Change]:
    """A smaller pixel budget; where there is a canvas, which has one size, that of another checkpoint."""
    return _pixels(setup, model) if setup.recipe.canvas is None else _canvas(model, setup.recipe.canvas.size)


def _pixels(setup: _Setup, model: ModelSize) -> Iterator[_Change]:
    """Half and a quarter of the area that an image has in the sample with most image tokens."""
    area = model.costs.pixels_per_token(model.config)
    most = max(setup.workload.lengths, key=lambda length: length.images)
    largest = most.images // max(most.pictures, 1)
    for tokens in (largest // 2, largest // 4):
        if tokens:
            limit = tokens * area
            minimum = min(setup.recipe.images.min_pixels, limit)
            text = f"images.max_pixels={limit}"
            if minimum != setup.recipe.images.min_pixels:
                text += f" images.min_pixels={limit}"
            change = _Shrink(tokens, "images", {"max_pixels": limit, "min_pixels": minimum})
            yield _Change(f"{text} (details get lost)", change)


def _canvas(model: ModelSize, size: int) -> Iterator[_Change]:
    """Every smaller size that the family has checkpoints for; their smaller table of positions is not taken off."""
    for side in model.costs.SIDES:
        if side < size:
            change = _Shrink(side**2 // model.costs.pixels_per_token(model.config), "canvas", {"size": side})
            yield _Change(f"canvas.size={side} with a checkpoint for pictures of that size (details get lost)", change)


@dataclass(frozen=True, slots=True)
class _Shrink:
    """Sets a section and cuts each picture to at most `tokens` image tokens."""

    tokens: int
    section: str
    values: dict[str, int]

    def __call__(self, run: _Setup) -> _Setup:
        lengths = [self._shrunk(length) for length in run.workload.lengths]
        return replace(_set(run, self.section, **self.values), workload=replace(run.workload, lengths=lengths))

    def _shrunk(self, length: Length) -> Length:
        images = min(length.images, self.tokens * length.pictures)
        prefix = length.prefix - (length.images - images) if length.prefix else 0
        return replace(length, images=images, prefix=prefix)


def _nf4(setup: _Setup, model: ModelSize) -> Iterator[_Change]:  # noqa: ARG001
    lora = setup.recipe.adapter.kind == "lora" and setup.recipe.model.quantization == "none"
    if lora and setup.launch.sharding in ("none", "ddp"):
        yield _Change("model.quantization=nf4", lambda run: _set(run, "model", quantization="nf4"))


def _zero3(setup: _Setup, model: ModelSize) -> Iterator[_Change]:  # noqa: ARG001
    """ZeRO-3 on the processes there are, or on 2, 4 or 8 if there is one.

    Neither Muon nor 4-bit weights can be cut into slices.
    """
    if setup.recipe.train.optimizer == "muon" or setup.launch.cuts_weights:
        return
    whole = "" if setup.recipe.model.quantization == "none" else " and model.quantization=none"
    for processes in (setup.launch.processes,) if setup.launch.processes > 1 else (2, 4, 8):
        launch = Launch(processes, "zero3")
        yield _Change(
            f"{processes} processes with {ZERO3}{whole}",
            lambda run, launch=launch: replace(_set(run, "model", quantization="none"), launch=launch),  # type: ignore[misc]
        )
