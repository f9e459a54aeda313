"""Validation during training: exact loss, generated answers scored like a finished run, the best is kept."""

from __future__ import annotations

import json

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.predictions import read_predictions
from infer.engines import local
from infer.engines.hf import HfEngine
from infer.run import Request
from infer.run import run as infer
from recipes.errors import RecipeError
from train import validation
from train.prepare import prepare
from train.run import run
from train.validation import subset, validation_loss


def silent(line: str) -> None:
    """Takes the place of print."""


def history(out):
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("reduction", ["token", "sample"])
def test_the_validation_loss_does_not_depend_on_the_batch(reduction, make_recipe):
    found = []
    for batch in ("batch.size=1", "batch.size=5", "batch.max_tokens=300"):
        prepared = prepare(make_recipe(batch, f"batch.loss_reduction={reduction}"), silent)
        found.append(validation_loss(prepared, prepared.model, Accelerator(cpu=True)))
    assert found[1] == pytest.approx(found[0], rel=1e-6)
    assert found[2] == pytest.approx(found[0], rel=1e-6)


@pytest.fixture(scope="module")
def scored(make_recipe, tmp_path_factory):
    """A run that validates by generated answers after steps 1, 2 and 3."""
    out = tmp_path_factory.mktemp("runs") / "scored"
    recipe = make_recipe("selection.by=score", "train.validate_steps=1", "decoding.max_new_tokens=40")
    run(recipe, out, silent)
    return recipe, out


def test_answers_are_scored_at_every_validation(scored, phantom_data):
    _, out = scored
    entries = [entry for entry in history(out) if "eval_score" in entry]
    assert [entry["step"] for entry in entries] == [1, 2, 3]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["best_validation_loss"] == min(entry["eval_loss"] for entry in entries)  # not the best score
    for entry in entries:
        assert {"eval_loss", "eval_vqa/balanced_accuracy", "eval_grounding/iou_at_0.5"} <= entry.keys()
        rows = read_predictions(out / "validation" / f"step-{entry['step']:06d}")
        assert [row.id for row in rows] == [record.id for record in read_records(phantom_data, "val")]


def test_validation_answers_are_those_of_the_saved_model(scored, phantom_data, tmp_path):
    """The model is generated with as it trains; saved, loaded and asked again it says the same."""
    _, out = scored
    folder = infer(Request(weights=str(out / "model"), data=phantom_data, split="val", out=tmp_path / "again"))
    best = json.loads((out / "manifest.json").read_text())["best_checkpoint"]
    step = int(best.removeprefix("checkpoint-"))
    then = [row.text for row in read_predictions(out / "validation" / f"step-{step:06d}")]
    assert then == [row.text for row in read_predictions(folder)]


def test_validation_does_not_disturb_training(scored, make_recipe, tmp_path):
    """Dropout and weights go on as if nobody had asked; the last checkpoints are bit-equal."""
    _, out = scored
    plain = tmp_path / "plain"
    run(make_recipe("data.validation=null", "decoding.max_new_tokens=40"), plain, silent)
    with_it, without = (
        load_file(folder / "checkpoints/checkpoint-3/adapter_model.safetensors") for folder in (out, plain)
    )
    assert all(torch.equal(with_it[key], without[key]) for key in without)


def test_patience_stops_early_and_the_best_is_kept(make_recipe, tmp_path):
    """A learning rate too small to change a loss: the first validation stays the best."""
    recipe = make_recipe(
        "train.learning_rate=1.0e-30", "train.max_steps=12", "train.validate_steps=1", "selection.patience=2"
    )
    run(recipe, tmp_path / "run", silent)
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (manifest["steps"], manifest["best_checkpoint"]) == (3, "checkpoint-1")
    saved, final = (
        load_file(tmp_path / "run" / folder / "adapter_model.safetensors")
        for folder in ("checkpoints/checkpoint-1", "model")
    )
    assert all(torch.equal(saved[key], final[key]) for key in saved)


def test_the_last_weights_can_be_asked_for(make_recipe, tmp_path):
    run(make_recipe("selection.by=last", "train.learning_rate=3.0"), tmp_path / "run", silent)
    last = load_file(tmp_path / "run/checkpoints/checkpoint-3/adapter_model.safetensors")
    final = load_file(tmp_path / "run/model/adapter_model.safetensors")
    assert all(torch.equal(last[key], final[key]) for key in last)


@pytest.mark.parametrize("valid_boxes", [False, True])
def test_answers_are_generated_as_the_recipe_says(make_paligemma_recipe, tmp_path, monkeypatch, valid_boxes):
    asked = []

    class Asked(HfEngine):
        def generate(self, records):
            asked.append((self.valid_boxes, self.max_new_tokens, len(records)))
            return super().generate(records)

    monkeypatch.setattr(local, "HfEngine", Asked)
    settings = ("selection.by=score", "decoding.max_new_tokens=5", "decoding.batch_size=3")
    recipe = make_paligemma_recipe(*settings, f"decoding.valid_boxes={str(valid_boxes).lower()}")
    prepared = prepare(recipe, silent)
    validation.GenerativeValidation(prepared, tmp_path)(prepared.model, 1)
    assert asked[0] == (valid_boxes, 5, 3)


def test_a_subset_takes_whole_patients_and_is_always_the_same(phantom_data):
    records = list(read_records(phantom_data, "val"))
    part = subset(records, 6)
    assert 6 <= len(part) < len(records)
    groups = {record.group for record in part}
    assert part == [record for record in records if record.group in groups]
    assert subset(records, 6) == part
    assert subset(records, None) == records


@pytest.mark.parametrize("profile", ["corrected", "published"])
def test_a_subset_without_a_class_is_an_error_before_the_first_step(profile, make_recipe, tmp_path, monkeypatch):
    def without_no(records, limit):
        return [record for record in records if record.target.label != "no"]

    monkeypatch.setattr(validation, "subset", without_no)
    with pytest.raises(DataError, match=r"selection score of .* is not defined.*vqa yes") as error:
        run(make_recipe("selection.by=score", f"selection.profile={profile}"), tmp_path / "run", silent)
    assert ", vqa no " not in str(error.value)
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_data_with_some_of_the_tasks_are_selected_by_these(make_recipe, tmp_path, monkeypatch):
    def boxes_only(records, limit):
        return [record for record in records if record.task == "grounding"]

    monkeypatch.setattr(validation, "subset", boxes_only)
    run(make_recipe("selection.by=score"), tmp_path / "run", silent)
    (entry,) = [entry for entry in history(tmp_path / "run") if entry.get("step") == 2 and "eval_score" in entry]
    assert entry["eval_score"] == entry["eval_grounding/iou_at_0.5"]


def test_a_warm_up_as_long_as_the_run_is_said(make_recipe):
    lines: list[str] = []
    prepare(make_recipe("train.warmup_steps=3"), lines.append)
    assert any("never reaches its peak" in line for line in lines)


def test_selection_needs_validation(make_recipe):
    with pytest.raises(RecipeError, match="selection needs validation records"):
        make_recipe("data.validation=null", "selection.by=score")
