"""Which samples make up which step: laws of the plan, none of which needs a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipes.running import Batch
from train.cuts import Sample, cut_step, packed_tokens
from train.plan import WINDOW, Plan

SAMPLES = st.lists(
    st.builds(
        Sample,
        tokens=st.integers(1, 90),
        target=st.integers(1, 9),
        weight=st.sampled_from((0.5, 1.0, 3.0)),
        stratum=st.sampled_from(("yes", "no", None)),
        task=st.sampled_from(("vqa", "grounding")),
        images=st.integers(0, 6),
    ).map(lambda sample: replace(sample, prefix=sample.tokens // 2)),
    min_size=1,
    max_size=60,
)
BATCHES = st.builds(
    Batch,
    size=st.integers(1, 5),
    accumulation=st.integers(1, 3),
    max_tokens=st.none() | st.integers(90, 400),
    group_by_length=st.booleans(),
    sampler=st.sampled_from(("shuffle", "balanced")),
    loss_reduction=st.sampled_from(("token", "sample")),
)
SHARING = BATCHES.filter(lambda batch: batch.size > 1 or batch.max_tokens).map(
    lambda batch: batch.model_copy(update={"share_images": True})
)


def shown(step):
    """Positions that carry weight in a step, with repeats."""
    return sorted(
        position
        for part in step.parts
        for micro in part
        for position, weight in zip(micro.samples, micro.weights, strict=True)
        if weight
    )


@settings(max_examples=150, deadline=None)
@given(SAMPLES, BATCHES | SHARING, st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_every_process_makes_equally_many_passes_and_the_divisor_counts_what_is_shown(
    samples, batch, processes, epoch, packed
):
    plan = Plan(samples, batch, seed=3, processes=processes, packed=packed)
    steps = plan.epoch(epoch)
    assert len(steps) == plan.steps_per_epoch
    for step in steps:
        assert len(step.parts) == processes
        assert len({len(part) for part in step.parts}) == 1
        found = shown(step)
        assert 1 <= len(found) <= plan.per_step
        unit = (lambda s: s.target) if batch.loss_reduction == "token" else (lambda s: 1)
        assert step.items == pytest.approx(sum(samples[i].weight * unit(samples[i]) for i in found))
        for micro in (micro for part in step.parts for micro in part):
            if batch.max_tokens is None:
                assert len(micro.samples) <= batch.size
            elif packed:
                assert packed_tokens(micro.samples, samples) <= batch.max_tokens
            else:
                assert len(micro.samples) * max(samples[i].tokens for i in micro.samples) <= batch.max_tokens


@settings(max_examples=60, deadline=None)
@given(SAMPLES, BATCHES | SHARING, st.integers(1, 4))
def test_an_epoch_shows_every_sample_once_unless_balanced(samples, batch, processes):
    plan = Plan(samples, batch.model_copy(update={"sampler": "shuffle"}), seed=0, processes=processes)
    for epoch in (0, 1):
        assert sorted(i for step in plan.epoch(epoch) for i in shown(step)) == list(range(len(samples)))


@settings(max_examples=60, deadline=None)
@given(SAMPLES, BATCHES | SHARING, st.integers(0, 25), st.integers(0, 25))
def test_a_resumed_run_takes_the_same_steps(samples, batch, first, more):
    whole = list(Plan(samples, batch, seed=1, processes=2).steps(0, first + more))
    assert len(whole) == first + more
    assert list(Plan(samples, batch, seed=1, processes=2).steps(first, first + more)) == whole[first:]


@pytest.mark.parametrize("group_by_length", [False, True])
@pytest.mark.parametrize("sampler", ["shuffle", "balanced"])
def test_the_samples_of_a_step_do_not_depend_on_how_it_is_cut(sampler, group_by_length):
    samples = [Sample(tokens=10 + i % 17, target=1, stratum=str(i % 5 == 0)) for i in range(100)]
    same = {"sampler": sampler, "group_by_length": group_by_length}
    plans = [
        Plan(samples, Batch(size=size, accumulation=accumulation, **same, **cut), seed=5, processes=processes)
        for size, accumulation, processes, cut in (
            (8, 1, 1, {}),
            (1, 8, 1, {}),
            (2, 4, 1, {}),
            (4, 1, 2, {}),
            (1, 2, 4, {}),
            (8, 1, 1, {"max_tokens": 50}),
        )
    ]
    for epoch in (0, 2):
        steps = [[shown(step) for step in plan.epoch(epoch)] for plan in plans]
        assert all(other == steps[0] for other in steps)


def test_the_order_depends_on_seed_and_epoch():
    samples = [Sample(tokens=1, target=1) for _ in range(50)]
    orders = [
        tuple(tuple(shown(step)) for step in Plan(samples, Batch(size=5), seed=seed, processes=1).epoch(epoch))
        for seed in (0, 1)
        for epoch in (1, 2)
    ]
    assert len(set(orders)) == 4


def test_the_longest_sample_is_in_the_first_step():
    samples = [Sample(tokens=10 + (i == 37) * 500, target=1) for i in range(80)]
    first = Plan(samples, Batch(size=4), seed=0, processes=1).epoch(0)[0]
    assert first.parts[0][0].samples[0] == 37


def test_length_grouping_saves_padding():
    samples = [Sample(tokens=1 + (i * 37) % 200, target=1) for i in range(WINDOW * 8)]

    def padding(group_by_length):
        steps = Plan(samples, Batch(size=8, group_by_length=group_by_length), seed=0, processes=1).epoch(0)
        micros = [micro.samples for step in steps for part in step.parts for micro in part]
        return sum(len(m) * max(samples[i].tokens for i in m) - sum(samples[i].tokens for i in m) for m in micros)

    assert padding(group_by_length=True) < 0.2 * padding(group_by_length=False)


def test_balanced_shows_strata_equally_often_within_each_task():
    samples = [Sample(tokens=1, target=1, stratum="yes" if i < 10 else "no", block=("vqa",)) for i in range(100)]
    samples += [Sample(tokens=1, target=1, block=("grounding",)) for _ in range(40)]
    plan = Plan(samples, Batch(size=7, sampler="balanced"), seed=0, processes=1)
    seen: Counter[int] = Counter()
    for epoch in range(9):
        found = [i for step in plan.epoch(epoch) for i in shown(step)]
        seen.update(found)
        kinds = Counter((*samples[i].block, samples[i].stratum) for i in found)
        assert kinds == {("vqa", "yes"): 50, ("vqa", "no"): 50, ("grounding", None): 40}
    # 450 draws from 10 and from 90: every sample of a stratum comes equally often, also across epochs.
    assert {seen[i] for i in range(10)} == {45}
    assert {seen[i] for i in range(10, 100)} == {5}
    assert {seen[i] for i in range(100, 140)} == {9}


def test_a_process_with_nothing_left_repeats_a_sample_without_weight():
    samples = [Sample(tokens=5, target=2), Sample(tokens=3, target=1), Sample(tokens=4, target=1)]
    step = cut_step(range(3), samples, Batch(size=1), processes=2)
    assert [len(part) for part in step.parts] == [2, 2]
    filler = step.parts[1][1]
    assert (filler.samples, filler.weights) == ((1,), (0.0,))
    assert step.items == 4


@settings(max_examples=100, deadline=None)
@given(SAMPLES, SHARING, st.integers(1, 4), st.booleans())
def test_the_samples_of_a_step_do_not_depend_on_how_it_is_cut_or_by_how_many(samples, batch, processes, packed):
    other = batch.model_copy(update={"size": 1, "accumulation": batch.size * batch.accumulation * processes})
    plans = (
        Plan(samples, batch, seed=2, processes=processes, packed=packed),
        Plan(samples, other.model_copy(update={"max_tokens": 90}), seed=2, processes=1, packed=packed),
    )
    for one, two in zip(*(plan.epoch(0) for plan in plans), strict=True):
        assert shown(one) == shown(two)


@settings(max_examples=100, deadline=None)
@given(SAMPLES, SHARING)
def test_an_image_set_is_read_once_a_step_if_it_fits_into_a_pass(samples, batch):
    """Shared images stay together in an epoch but where a step ends, and in a step but where a pass is full."""
    plan = Plan(samples, batch.model_copy(update={"sampler": "shuffle", "group_by_length": False}), seed=0, processes=1)
    for step in plan.epoch(1):
        sets = [samples[i].images for micro in step.parts[0] for i in set(micro.samples)]
        for images in set(sets):
            members = [i for i in shown(step) if samples[i].images == images]
            passes = sum(any(samples[i].images == images for i in micro.samples) for micro in step.parts[0])
            width = max(samples[i].tokens for i in members)
            fits = len(members) <= batch.size if batch.max_tokens is None else len(members) * width <= batch.max_tokens
            assert passes == 1 or not fits
