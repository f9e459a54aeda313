"""The loss does not depend on how a step is split, on padding, or on which head computes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional
from transformers import TrainerCallback

from benchmarks.dataset import read_records
from collators.base import IGNORE
from models.registry import family_module
from tests.collators.samples import folder_images, make_collator
from train.arguments import training_arguments
from train.cuts import Sample
from train.loader import StepLoader
from train.loss import summed_loss, supervision, token_weights
from train.plan import Plan
from train.trainer import GroundedTrainer


class KeepGradients(TrainerCallback):
    """Copies all gradients, as one vector, before each optimiser step."""

    def __init__(self):
        self.steps = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.steps.append(torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.grad is not None]))


def collator_for(recipe, data, *, targets=True):
    return make_collator(recipe, folder_images(data), targets=targets)


@pytest.fixture(params=["qwen3_vl", "paligemma"])
def make(request, make_recipe, make_paligemma_recipe):
    """Makes recipes of a family."""
    return {"qwen3_vl": make_recipe, "paligemma": make_paligemma_recipe}[request.param]


def gradients(recipe, data, out: Path, records):
    """Gradients of the first two optimiser steps of a run."""
    family = family_module(recipe.model.family)
    model = family.adapt(family.load_model(recipe.model), recipe.adapter, seed=0)
    collator = collator_for(recipe, data)
    weights = recipe.batch.class_weights
    samples = [
        Sample(tokens=length.total, target=length.target, weight=weights.get(record.target.label or "", 1.0))
        for record, length in zip(records, collator.measure(records), strict=True)
    ]
    plan = Plan(samples, recipe.batch, seed=recipe.train.seed, processes=1)
    total = recipe.train.max_steps
    steps = StepLoader(plan, records, collator, rank=0, first=0, total=total, pin=False)
    keep = KeepGradients()
    arguments = training_arguments(recipe, out, steps=total, quiet=True)
    GroundedTrainer(recipe, model, steps, validate=None, args=arguments, callbacks=[keep]).train()
    return keep.steps


def plain_loss(logits, labels):
    """Summed over the tokens of a padded batch."""
    targets, _ = supervision(labels)
    return summed_loss(logits, targets, torch.ones(len(targets)))


def distance(a, b):
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("reduction", ["token", "sample"])
def test_gradients_do_not_depend_on_the_split_of_a_step(reduction, make, phantom_data, tmp_path):
    records = list(read_records(phantom_data, "train"))[:19]  # the last step of the epoch has 3
    runs = {}
    for size, accumulation, more in ((8, 1, ()), (1, 8, ()), (2, 4, ()), (8, 1, ("batch.max_tokens=160",))):
        recipe = make(
            f"batch.size={size}",
            f"batch.accumulation={accumulation}",
            f"batch.loss_reduction={reduction}",
            "batch.class_weights={'yes': 3.0, abnormal: 2.0}",
            "train.max_steps=3",
            "train.clip_norm=1.0e+9",
            "adapter.dropout=0.0",
            "data.validation=null",
            *more,
        )
        runs[size, more] = gradients(recipe, phantom_data, tmp_path / f"{size}{len(more)}", records)
    reference, *others = runs.values()
    assert len(reference) == 3
    for other in others:
        for step, expected in zip(other, reference, strict=True):
            assert distance(step, expected) < 1e-5


def test_the_two_reductions_differ(make_recipe, phantom_data, tmp_path):
    """Guards the test above: with targets of unequal length the reductions are not the same."""
    records = list(read_records(phantom_data, "train"))[:16]
    token, sample = (
        gradients(
            make_recipe(
                "batch.size=8",
                f"batch.loss_reduction={r}",
                "train.max_steps=1",
                "train.clip_norm=1.0e+9",
                "data.validation=null",
            ),
            phantom_data,
            tmp_path / r,
            records,
        )[0]
        for r in ("token", "sample")
    )
    assert distance(token, sample) > 1e-3


def test_a_step_averages_over_its_tokens_or_samples():
    """Pitfall 24. Two samples of 1 and 3 target tokens with token losses 4 and 0: 1.0 by token, 2.0 by sample."""
    labels = torch.tensor([[IGNORE, IGNORE, IGNORE, 1], [IGNORE, 0, 0, 0]])
    high = torch.tensor([0.0, -float(torch.tensor(4.0).exp().sub(1).log())])  # cross-entropy of class 1 is 4
    certain = torch.tensor([200.0, -200.0])
    logits = torch.stack([high, certain, certain, certain])

    def total(weights, reduction):
        targets, owners = supervision(labels)
        return float(summed_loss(logits, targets, token_weights(owners, torch.tensor(weights), reduction)))

    assert total([1.0, 1.0], "token") / 4 == pytest.approx(1.0)
    assert total([1.0, 1.0], "sample") / 2 == pytest.approx(2.0)
    assert total([3.0, 1.0], "token") == pytest.approx(12.0)
    assert total([0.0, 1.0], "sample") == pytest.approx(0.0)


def test_head_at_targets_equals_full_head(make, phantom_data):
    recipe = make()
    records = list(read_records(phantom_data, "train"))[:6]
    batch = collator_for(recipe, phantom_data)(records)
    model = family_module(recipe.model.family).load_model(recipe.model)
    labels, keep = batch.pop("labels"), batch.pop("logits_to_keep")
    few = plain_loss(model(**batch, logits_to_keep=keep).logits, labels) / (labels != IGNORE).sum()
    logits = model(**batch).logits
    full = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE)
    assert abs(few.item() - full.item()) < 1e-6
    grads = [torch.autograd.grad(loss, model.lm_head.weight)[0] for loss in (few, full)]
    assert distance(grads[0], grads[1]) < 1e-5


def test_loss_does_not_depend_on_padding(make, phantom_data):
    """A sample alone, and beside one that is longer."""
    recipe = make()
    records = sorted(read_records(phantom_data, "train"), key=lambda r: len(r.question) + 100 * len(r.target.boxes))
    short, long = records[0], records[-1]
    collator = collator_for(recipe, phantom_data)
    model = family_module(recipe.model.family).load_model(recipe.model)

    def total(batch_records):
        batch = collator(batch_records)
        labels = batch.pop("labels")
        with torch.no_grad():
            return float(plain_loss(model(**batch).logits, labels))

    assert collator([short])["input_ids"].shape[1] < collator([short, long])["input_ids"].shape[1]
    assert total([short]) + total([long]) == pytest.approx(total([short, long]), rel=1e-5)
