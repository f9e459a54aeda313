"""Volumes, slices and questions without images in the same steps: ZeRO-3 trains and answers as one process does."""

from __future__ import annotations

import itertools
import shutil

import pytest
import torch

from benchmarks.predictions import read_predictions
from tests.launching import ROOT
from tests.sharding import (
    answers,
    assert_same_run,
    deepspeed,
    history,
    plain_model,
    trained,
    weights,
)
from tests.volumes import MIXED, TEXT_AND_VOLUME, VOLUME_AND_SLICE, VOLUME_AND_TEXT, write_steps
from train.prepare import prepare
from train.run import run

STEPS = (TEXT_AND_VOLUME, VOLUME_AND_TEXT) * 3 + (VOLUME_AND_SLICE,)
VALIDATION = ("volume", "text", "text", "slice", "volume")
CUT = ("batch.size=1", "batch.accumulation=2")  # x 2 processes
KINDS = {
    "published": ("adapter.kind=full", "freeze=[vision,projector]", "train.learning_rate=1.0e-3"),
    "everything": ("adapter.kind=full", "train.learning_rate=1.0e-3", "train.gradient_checkpointing=true"),
    "lora": ("adapter.kind=lora", "adapter.dropout=0.0"),
}


def silent(line):
    """Takes the place of print."""


@pytest.fixture(scope="module")
def words(tiny, tmp_path_factory):
    """Overrides that every run here shares."""
    data = write_steps(tmp_path_factory.mktemp("mixed"), STEPS, validation=VALIDATION)
    return [
        *MIXED,
        f"data.dataset={data}",
        f"model.checkpoint={tiny}",
        f"train.max_steps={len(STEPS)}",
        "train.save_steps=3",
        "train.keep_checkpoints=9",
        "train.log_steps=1",
        "train.warmup_steps=0",
        "batch.workers=0",
    ]


def test_one_process_has_images_and_the_other_none_and_they_swap(words, make_recipe):
    """What the runs below rest on."""
    prepared = prepare(make_recipe(*words, *CUT), silent)
    schedule, records = prepared.schedule, prepared.train.records
    schedule.processes, schedule.per_step = 2, 4
    passes = [
        tuple(tuple(len(records[i].images) for i in micro.samples) for micro in both)
        for step in schedule.epoch(0)
        for both in zip(*step.parts, strict=True)
    ]
    assert all(len(first) == len(second) == 1 for first, second in passes)
    shown = [(first[0], second[0]) for first, second in passes]
    volumes, slices = range(8, 13), (1,)
    for wanted in itertools.permutations([(0,), slices, volumes], 2):
        if wanted not in ((slices, volumes), ((0,), slices)):  # the longer sample is the first process's
            assert any(a in wanted[0] and b in wanted[1] for a, b in shown)
    first_passes = shown[::2][:-1]
    assert [bool(a) for a, _ in first_passes] == [False, True] * 3
    assert [bool(b) for _, b in first_passes] == [True, False] * 3
    assert (0, 0) in shown


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_zero3_equals_one_process_and_continues_bit_for_bit(kind, words, tiny, make_recipe, tmp_path):
    shared = [*words, *KINDS[kind]]
    one, two, whole = tmp_path / "one", tmp_path / "two", tmp_path / "whole"
    run(make_recipe(*shared, "batch.size=4"), one, silent)
    how = deepspeed(tmp_path, 3)
    trained(how, [*shared, *CUT], two)
    assert_same_run(two, one)
    form = "lora" if kind == "lora" else "full"
    recipe = make_recipe(*shared)
    logits, tokens = answers(plain_model(two, tiny, form), recipe)
    wanted, wanted_tokens = answers(plain_model(one, tiny, form), recipe)
    assert (logits - wanted).norm() <= 1e-3 * wanted.norm()
    assert torch.equal(tokens, wanted_tokens)

    shutil.copytree(two, whole)
    for gone in (6, len(STEPS)):
        shutil.rmtree(two / f"checkpoints/checkpoint-{gone}")
    shutil.rmtree(two / "model")
    (two / "manifest.json").unlink()
    assert "continuing from checkpoint-3" in trained(how, [*shared, *CUT], two)
    assert_same_run(two, whole, tolerance=0)
    found, target = weights(two), weights(whole)
    assert all(torch.equal(found[key], value) for key, value in target.items())


@pytest.mark.slow
def test_zero3_answers_with_and_without_images_in_step(words, make_recipe, tmp_path):
    """One process is asked about a volume, the other nothing with images; the last question only one of them has."""
    shared = [
        *words,
        *KINDS["everything"],
        "train.learning_rate=2.0e-3",
        "codec=plain",
        "train.max_steps=3",
        "train.validate_steps=1",
        "selection.by=score",
        "decoding.max_new_tokens=12",
        "decoding.batch_size=1",
    ]
    one, two = tmp_path / "one", tmp_path / "two"
    run(make_recipe(*shared, "batch.size=4"), one, silent)
    trained(deepspeed(tmp_path, 3), [*shared, *CUT], two)
    assert_same_run(two, one)
    lengths = set()
    for step in (1, 2, 3):
        mine, wanted = (read_predictions(out / f"validation/step-{step:06d}") for out in (two, one))
        assert [(row.id.split("-")[2], row.text) for row in mine] == [
            (kind, row.text) for kind, row in zip(VALIDATION, wanted, strict=True)
        ]
        lengths.add(frozenset(row.tokens.new for row in mine))
    assert any(len(found) > 1 for found in lengths)
    scores = [[entry["eval_score"] for entry in history(out) if "eval_score" in entry] for out in (two, one)]
    assert scores[0] == pytest.approx(scores[1])


@pytest.mark.slow
def test_the_published_zero3_settings_train_too(words, make_recipe, tmp_path):
    """Sizes that the settings leave to the libraries are filled in, and the result is that of one process."""
    shared = [*words, *KINDS["published"], "train.max_steps=2", "train.save_steps=2"]
    how = ("--use_deepspeed", "--deepspeed_config_file", str(ROOT / "recipes/deepspeed/zero3_sgmri_paper.json"))
    trained(how, [*shared, *CUT], tmp_path / "two")
    run(make_recipe(*shared, "batch.size=4"), tmp_path / "one", silent)
    assert_same_run(tmp_path / "two", tmp_path / "one")
