"""The activation formulas against what autograd and the memory profiler see."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from collators.base import Length
from models.costs import MicroBatch, longest_batch
from models.qwen3_vl_costs import activations, flops
from recipes.load import load_recipe
from tests.train.costing import (
    SUPERVISED,
    cast_bytes,
    estimated,
    forward,
    made_up_batch,
    mixed_batch,
    peak_bytes,
    saved_bytes,
    small_config,
    step,
    trainable_model,
)
from train.memory import Launch, numerics

FP32 = ("train.precision=fp32", "model.dtype=float32")
BF16 = ("train.precision=bf16", "model.dtype=bfloat16")
KINDS = {
    "lora": ("adapter.dropout=0.0",),
    "lora with dropout": ("adapter.dropout=0.1",),
    "lora and projector": ("adapter.train_also=[projector]",),
    "lora of attention only, eager": ("adapter.roles=[attention]", "model.attention=eager"),
    "full": ("adapter.kind=full",),
    "full, vision frozen": ("adapter.kind=full", "freeze=[vision]"),
    "full, language frozen": ("adapter.kind=full", "freeze=[language,embeddings]"),
}
# Samples, tokens and grid of the image; the second one is six times as long.
SHORT, LONG = (2, 64, (8, 16)), (3, 400, (16, 32))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def make(*overrides, checkpointing=False):
    return load_recipe("demo/lora", [*overrides, f"train.gradient_checkpointing={str(checkpointing).lower()}"])


@pytest.mark.parametrize(
    ("types", "size"), [(FP32, SHORT), (FP32, LONG), (BF16, LONG)], ids=["fp32 short", "fp32 long", "bf16 long"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_kept_for_the_backward_pass(kind, types, size):
    recipe = make(*KINDS[kind], *types)
    model = trainable_model(small_config(), recipe)
    batch, _, shape = made_up_batch(*size)
    active = estimated(model, recipe, shape)
    mine = active.inputs + active.vision + active.language + cast_bytes(model, recipe)
    assert mine == pytest.approx(saved_bytes(model, batch, autocast=recipe.train.precision == "bf16"), rel=0.08)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["full", "full, vision frozen"])
def test_kept_for_volumes_slices_and_texts_together(kind, attention):
    """Each image sees itself alone, however many its sample has."""
    recipe = make(*KINDS[kind], *FP32, f"model.attention={attention}")
    model = trainable_model(small_config(), recipe)
    batch, _, lengths = mixed_batch([10, 1, 0], (16, 16), text=120)
    shape = longest_batch(lengths, 3)
    active = estimated(model, recipe, shape)
    mine = active.inputs + active.vision + active.language
    assert mine == pytest.approx(saved_bytes(model, batch, autocast=False), rel=0.08)


def test_operations_of_a_sample_follow_its_own_images():
    recipe = make("adapter.kind=full", *FP32, "model.attention=eager")
    model = trainable_model(small_config(), recipe)
    for count in (0, 1, 8):
        batch, _, (length,) = mixed_batch([count], (16, 32), text=60)
        if not count:
            batch = {key: value for key, value in batch.items() if key not in ("pixel_values", "image_grid_thw")}
        with FlopCounterMode(display=False) as counter:
            forward(model, batch, autocast=False).logits.float().logsumexp(-1).sum().backward()
        assert flops(model.config, recipe, length) == pytest.approx(counter.get_total_flops(), rel=0.05)


@pytest.mark.parametrize("size", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("kind", ["lora", "lora and projector", "full", "full, vision frozen"])
def test_kept_under_checkpointing(kind, size):
    recipe = make(*KINDS[kind], *FP32, checkpointing=True)
    model = trainable_model(small_config(), recipe)
    batch, _, shape = made_up_batch(*size)
    active = estimated(model, recipe, shape)
    assert active.inputs + active.vision + active.language == pytest.approx(
        saved_bytes(model, batch, autocast=False), rel=0.08
    )


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("types", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["lora with dropout", "full"])
def test_peak_of_a_pass(kind, types, checkpointing):
    """The second pass of a step: gradients are there already, so that the peak is the activations'."""
    recipe = make(*KINDS[kind], *types, checkpointing=checkpointing)
    autocast = recipe.train.precision == "bf16"
    model = trainable_model(small_config(), recipe)
    batch, labels, shape = made_up_batch(*LONG)
    step(model, batch, labels, autocast=autocast)
    peak = peak_bytes(lambda: step(model, batch, labels, autocast=autocast))
    active = estimated(model, recipe, shape)
    # The inputs were there before the meter ran.
    assert active.total - active.inputs + cast_bytes(model, recipe) == pytest.approx(peak, rel=0.2)


def test_logits_are_the_peak_where_the_vocabulary_is_large():
    recipe = make(*FP32)
    model = trainable_model(small_config(vocabulary=150_000), recipe)
    batch, labels, shape = made_up_batch(*SHORT)
    step(model, batch, labels, autocast=False)
    active = estimated(model, recipe, shape)
    assert active.logits == 12 * 2 * SUPERVISED * 150_000
    assert active.logits > active.block
    peak = peak_bytes(lambda: step(model, batch, labels, autocast=False))
    assert active.total - active.inputs == pytest.approx(peak, rel=0.05)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("kind", ["lora", "lora and projector", "full", "full, language frozen"])
def test_more_of_anything_never_takes_less(kind, checkpointing):
    recipe = make(*KINDS[kind], *FP32, checkpointing=checkpointing)
    shape = MicroBatch(samples=2, width=100, images=64, supervised=8, image_pairs=2 * 32**2)
    numbers = numerics(recipe, Launch(), on_cpu=False)
    base = activations(small_config(), recipe, shape, numbers).total
    for field in ("samples", "width", "images", "supervised", "image_pairs"):
        more = dataclasses.replace(shape, **{field: 3 * getattr(shape, field)})
        assert activations(small_config(), recipe, more, numbers).total >= base
    twice = dataclasses.replace(shape, samples=4, images=128, supervised=16, image_pairs=4 * 32**2)
    assert activations(small_config(), recipe, twice, numbers).total == pytest.approx(2 * base, rel=0.01)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("kind", ["lora", "full", "full, vision frozen"])
def test_operations_are_those_that_run(kind, checkpointing):
    recipe = make(*KINDS[kind], *FP32, "model.attention=eager", checkpointing=checkpointing)
    model = trainable_model(small_config(), recipe)
    batch, _, _ = made_up_batch(1, 200, (16, 32))
    with FlopCounterMode(display=False) as counter:
        outputs = forward(model, batch, autocast=False)
        outputs.logits.float().logsumexp(-1).sum().backward()
    mine = flops(model.config, recipe, Length(200 - 128 - SUPERVISED, 128, SUPERVISED))
    assert mine == pytest.approx(counter.get_total_flops(), rel=0.05)


def test_the_largest_batch_bounds_every_batch():
    lengths = [Length(10, 30, 5), Length(40, 8, 2), Length(5, 5, 20), Length(9, 0, 1, 0), Length(9, 24, 1, 6)]
    batch = longest_batch(lengths, 2)
    assert (batch.samples, batch.width, batch.images, batch.supervised) == (2, 50, 54, 25)
    assert batch.image_pairs == 30**2 + 6 * 4**2
    assert longest_batch(lengths, 8).samples == 5
