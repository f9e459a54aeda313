"""Where the phases of a training step and of an answer begin and end: hooks on a Qwen3-VL, its collator, Trainer and engine.

The way back is told apart by the moments at which gradients arrive: that of what the language model gives ends the
part of head and loss, that of what the vision tower gives, where something in it is trained, ends the language model's.
What a checkpointed block recomputes belongs to the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback

from benchmarks.schema import Record
from collators.base import Collator
from collators.sources import ImageSource
from perf.phases import REST, PhaseClock
from train.loader import Inputs, StepBatches, StepLoader
from train.trainer import GroundedTrainer

if TYPE_CHECKING:
    from PIL import Image as PILImage

    from benchmarks import schema
    from infer.engines.hf import HfEngine

READING = "reading and decoding"
PREPARING = "preparing pixels"
BATCHES = "batches, or waiting for them"
COPYING = "copying to the device"
VISION = "vision"
LANGUAGE = "language"
NEW_TOKENS = "language, new tokens"
HEAD = "head and loss"
HEAD_BACK = "head and loss, backward"
LANGUAGE_BACK = "language, backward"
VISION_BACK = "vision, backward"
OPTIMISER = "optimiser"
PHASES = (
    READING,
    PREPARING,
    BATCHES,
    COPYING,
    VISION,
    LANGUAGE,
    NEW_TOKENS,
    HEAD,
    HEAD_BACK,
    LANGUAGE_BACK,
    VISION_BACK,
    OPTIMISER,
)
# A pass has one of them if it computes prompts, whose images come with it.
_OF_IMAGES = ("pixel_values", "image_sets", "mm_encoder_outputs")


def time_model(clock: PhaseClock, model: nn.Module) -> list[RemovableHandle]:
    """Tells vision, language and head apart, forward and backward.

    Args:
        clock: The clock.
        model: A Qwen3-VL, adapted or not.

    Returns:
        What takes the hooks off again.
    """
    # An adapter's wrapper has the attributes of what it wraps, and `generate` passes it by.
    whole = next(module for module in model.modules() if "lm_head" in dict(module.named_children()))
    inner = next(module for module in model.modules() if hasattr(module, "get_rope_index"))
    tower, language = inner.get_submodule("visual"), inner.get_submodule("language_model")
    seeing = any(parameter.requires_grad for parameter in tower.parameters())
    outside: list[str] = []

    def begin(_: nn.Module, __: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        outside.append(clock.current)
        prompt = torch.is_grad_enabled() or any(keywords.get(name) is not None for name in _OF_IMAGES)
        clock.enter(LANGUAGE if prompt else NEW_TOKENS)

    def look(*_: Any) -> None:
        outside.append(clock.current)
        clock.enter(VISION)

    def looked(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401 - a class of transformers
        clock.enter(outside.pop())
        if seeing and torch.is_grad_enabled():
            _on_gradient(output.pooler_output, lambda: clock.enter(VISION_BACK))

    def spoken(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401 - a class of transformers
        if torch.is_grad_enabled():
            _on_gradient(output.last_hidden_state, lambda: clock.enter(LANGUAGE_BACK))

    def end(*_: Any) -> None:
        before = outside.pop()
        # The loss is made of the logits outside of the model; the way back ends it.
        if not torch.is_grad_enabled():
            clock.enter(before)

    return [
        whole.register_forward_pre_hook(begin, with_kwargs=True),
        tower.register_forward_pre_hook(look),
        tower.register_forward_hook(looked),
        language.register_forward_hook(spoken),
        whole.get_submodule("lm_head").register_forward_pre_hook(lambda *_: clock.enter(HEAD)),
        whole.register_forward_hook(end),
    ]


def _on_gradient(tensor: Tensor, call: Callable[[], None]) -> None:
    if tensor.requires_grad:
        tensor.register_hook(lambda _: call())  # type: ignore[no-untyped-call]


def time_collator(clock: PhaseClock, collator: Any) -> None:  # noqa: ANN401 - what only Qwen3-VL's has
    """Tells reading and preparing images apart, where this process does it.

    Args:
        clock: The clock.
        collator: That of Qwen3-VL.
    """
    collator.pictures.images = _TimedImages(clock, collator.pictures.images)
    _time_call(clock, collator.processor.image_processor, "preprocess", PREPARING)


def time_trainer(clock: PhaseClock, trainer: GroundedTrainer) -> list[RemovableHandle]:
    """Times the steps of a run, each a lap; the first lap is what is before them.

    Args:
        clock: The clock.
        trainer: Its model, and its collator where there are no workers, are timed too.

    Returns:
        What takes the hooks off the model again.
    """
    steps = trainer.get_train_dataloader()
    time_collator(clock, steps.collator)
    trainer.get_train_dataloader = lambda: _TimedSteps(clock, steps)  # type: ignore[method-assign]
    trainer.add_callback(_Laps(clock))
    # The way back begins at the loss, whatever ran before it.
    _time_call(clock, trainer.accelerator, "backward", HEAD_BACK, after=REST)
    _time_call(clock, trainer.accelerator, "clip_grad_norm_", OPTIMISER)
    _time_call(clock, trainer, "_prepare_inputs", COPYING)
    return time_model(clock, trainer.model)


def time_engine(clock: PhaseClock, engine: HfEngine) -> list[RemovableHandle]:
    """Times what an engine does for its answers, without worker processes.

    Returns:
        What takes the hooks off its model again.
    """
    time_collator(clock, engine.collator)
    timed: Any = _TimedCollator(clock, engine.collator)
    if engine.inputs is engine.collator:
        engine.inputs = timed
    engine.collator = timed
    return time_model(clock, engine.model)


def _time_call(clock: PhaseClock, owner: Any, name: str, phase: str, *, after: str | None = None) -> None:  # noqa: ANN401
    """Makes a method of one object a phase, which is followed by the one before it, or by `after`."""
    method = getattr(owner, name)

    @wraps(method)
    def timed(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - whatever the method gives
        with clock.phase(phase):
            found = method(*arguments, **keywords)
        if after is not None:
            clock.enter(after)
        return found

    setattr(owner, name, timed)


class _TimedImages:
    """Times reading and decoding."""

    def __init__(self, clock: PhaseClock, source: ImageSource) -> None:
        self._clock = clock
        self._source = source

    def __call__(self, image: schema.Image, where: str) -> PILImage.Image:
        with self._clock.phase(READING):
            return self._source(image, where)

    def content(self, image: schema.Image, where: str) -> str:
        with self._clock.phase(READING):
            return self._source.content(image, where)

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes that are not forked get the source alone: their time is not this process's.
        return _itself, (self._source,)


def _itself(source: ImageSource) -> ImageSource:
    return source


class _TimedCollator:
    """Times how long batches take."""

    def __init__(self, clock: PhaseClock, collator: Collator) -> None:
        self._clock = clock
        self._collator = collator

    def __call__(self, records: Sequence[Record]) -> dict[str, Any]:
        with self._clock.phase(BATCHES):
            return self._collator(records)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the collator has
        return getattr(self._collator, name)


class _TimedSteps(StepLoader):
    """Times how long a step waits for its batches."""

    def __init__(self, clock: PhaseClock, steps: StepLoader) -> None:
        self.__dict__.update(vars(steps))
        self._clock = clock

    def __iter__(self) -> Iterator[StepBatches]:
        for step in super().__iter__():
            yield replace(step, batches=self._timed(step.batches))

    def _timed(self, batches: Iterator[Inputs]) -> Iterator[Inputs]:
        while True:
            with self._clock.phase(BATCHES):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


class _Laps(TrainerCallback):  # type: ignore[misc]
    """A lap for each step, and one for what is before the first; the optimiser's part of a step."""

    def __init__(self, clock: PhaseClock) -> None:
        self._clock = clock
        self._began = False

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if not self._began:
            self._clock.lap()
        self._began = True

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._clock.enter(OPTIMISER)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._clock.enter(REST)
        self._clock.lap()
