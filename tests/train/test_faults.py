"""A run stopped while it writes: whatever file is half written, the same command ends with the same weights."""

from __future__ import annotations

import json
import shutil

import peft.peft_model
import pytest
import torch
from transformers import TrainerState

from models import provenance
from tests.train.runs import Stopped, curve, silent, stop_before_rename, tear, weights
from train import checkpoints, outputs, resume
from train import run as train_run
from train.checkpoints import SEAL, check_sealed, newest_checkpoint
from train.run import run

STEPS = 4


@pytest.fixture(scope="module")
def recipe(make_recipe):
    """Four steps with dropout, a checkpoint after each, two kept."""
    small = ("batch.size=2", "data.validation_limit=2", f"train.max_steps={STEPS}", "train.save_steps=1")
    return make_recipe("adapter.dropout=0.1", *small)


@pytest.fixture(scope="module")
def straight(recipe, tmp_path_factory):
    """The run without a fault."""
    out = tmp_path_factory.mktemp("straight") / "run"
    run(recipe, out, silent)
    return out


def half_a_removal(patch):
    """Stops when the first file of an old checkpoint is gone."""
    real = shutil.rmtree

    def torn(path, **keywords):
        if path.name == "checkpoint-1":
            (path / "adapter_model.safetensors").unlink()
            raise Stopped
        real(path, **keywords)

    patch.setattr(checkpoints.shutil, "rmtree", torn)


def half_a_copy(patch):
    """Stops when half of the best checkpoint has been copied."""
    real = shutil.copytree

    def torn(source, target, **keywords):
        real(source, target, **keywords)
        (target / "adapter_model.safetensors").unlink()
        raise Stopped

    patch.setattr(resume.shutil, "copytree", torn)


def during(owner, name, argument, ending):
    return lambda patch: tear(patch, owner, name, argument, ending)


def before_rename(owner, ending):
    return lambda patch: stop_before_rename(patch, owner, ending)


# What is being written -> how to stop there, and the checkpoint from which the run must go on (none: from the start).
WHILE_TRAINING = {
    "run marker": (before_rename(resume, "run/run.json"), None),
    "first weights": (during(peft.peft_model, "safe_save_file", 1, "checkpoint-1/adapter_model.safetensors"), None),
    "weights": (during(peft.peft_model, "safe_save_file", 1, "checkpoint-3/adapter_model.safetensors"), 2),
    "optimizer": (during(torch, "save", 1, "checkpoint-3/optimizer.pt"), 2),
    "random state": (during(torch, "save", 1, "checkpoint-3/rng_state.pth"), 2),
    "trainer state": (during(TrainerState, "save_to_json", 1, "checkpoint-3/trainer_state.json"), 2),
    "seal": (before_rename(checkpoints, f"checkpoint-3/{SEAL}"), 2),
    "removal of an old checkpoint": (half_a_removal, 3),
    "model": (during(peft.peft_model, "safe_save_file", 1, ".model.part/adapter_model.safetensors"), STEPS),
}
AFTER_TRAINING = {
    "copy of the best checkpoint": half_a_copy,
    "encoder of the model": before_rename(provenance, ".model.part/encoder.json"),
    "model card": before_rename(outputs, "README.md"),
    "history": before_rename(train_run, "history.jsonl"),
    "manifest": before_rename(outputs, "manifest.json"),
}


@pytest.mark.parametrize("fault", WHILE_TRAINING)
def test_a_stop_while_a_run_writes_leaves_no_trace(fault, recipe, straight, tmp_path):
    stop, checkpoint = WHILE_TRAINING[fault]
    out = tmp_path / "run"
    run_into(stop, recipe, out)
    assert begun(recipe, out) == ([] if checkpoint is None else [f"continuing from checkpoint-{checkpoint}"])
    assert_the_same(out, straight)


@pytest.mark.parametrize("fault", AFTER_TRAINING)
def test_a_stop_after_the_last_step_leaves_no_trace(fault, recipe, straight, tmp_path):
    """Twice at the same place, then it may go on."""
    out = shutil.copytree(straight, tmp_path / "run")
    (out / "manifest.json").unlink()
    for _ in range(2):
        run_into(AFTER_TRAINING[fault], recipe, out)
        if (out / "model").exists():
            assert same(out, straight)
            assert names(out / "model") == names(straight / "model")
    assert begun(recipe, out) == [f"continuing from checkpoint-{STEPS}"]
    assert_the_same(out, straight)


def run_into(stop, recipe, out):
    """Runs until the stop; what is called whole then is whole."""
    with pytest.MonkeyPatch.context() as patch:
        stop(patch)
        with pytest.raises(Stopped):
            run(recipe, out, silent)
    assert not (out / "manifest.json").exists()
    for sealed in out.glob(f"checkpoints/*/{SEAL}"):
        check_sealed(sealed.parent)


def begun(recipe, out):
    """Runs to the end and returns what was said of continuing."""
    lines: list[str] = []
    run(recipe, out, lines.append)
    return [line for line in lines if line.startswith("continuing from")]


def assert_the_same(out, straight):
    """Weights, curve, history, hash and files of the model are those of the run without a fault."""
    assert same(out, straight)
    assert curve(out) == curve(straight)
    assert losses(out) == losses(straight)
    hashes = [json.loads((folder / "manifest.json").read_text())["weights_hash"] for folder in (out, straight)]
    assert hashes[0] == hashes[1]
    assert names(out / "model") == names(straight / "model")
    assert not (out / ".model.part").exists()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def same(out, straight):
    got, expected = weights(out / "model"), weights(straight / "model")
    return got.keys() == expected.keys() and all(torch.equal(got[key], expected[key]) for key in expected)


def losses(out):
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return [(entry["step"], entry["loss"]) for entry in history if "loss" in entry]


def test_two_checkpoints_stay_and_both_are_sealed(straight):
    folders = sorted((straight / "checkpoints").iterdir())
    assert [folder.name for folder in folders] == ["checkpoint-3", "checkpoint-4"]
    for folder in folders:
        check_sealed(folder)
    assert newest_checkpoint(straight / "checkpoints") == folders[-1]
