"""PaliGemma from a recipe to scores: trained, selected by answers, predicted, scored, merged, asked again."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.dataset import read_records
from benchmarks.predictions import read_predictions
from eval.evaluate import evaluate
from eval.run import load_runs
from infer.run import Request
from infer.run import run as infer
from models.paligemma import load_model
from tests.adapters import logits_of, write_adapter_run
from tests.collators.samples import folder_images, make_collator
from tests.train.runs import AtStep, Stopped, silent, stop, weights
from train import run as train_run
from train import validation
from train.merge import Request as MergeRequest
from train.merge import merge
from train.run import run
from train.trainer import TrainingError, load_whole

OPTIONS = ("selection.by=score", "adapter.vision=true", "decoding.valid_boxes=true", "adapter.dropout=0.1")


@pytest.fixture(scope="module")
def finished(make_paligemma_recipe, paligemma_generation, tmp_path_factory):
    """A finished run of three steps and its recipe."""
    recipe = make_paligemma_recipe(*OPTIONS, generation=paligemma_generation)
    out = tmp_path_factory.mktemp("runs") / "straight"
    run(recipe, out, silent)
    return recipe, out


def test_training_goes_down_and_saves_the_adapters_of_both_towers(finished):
    recipe, out = finished
    losses = [
        entry["loss"]
        for line in (out / "history.jsonl").read_text().splitlines()
        if "loss" in (entry := json.loads(line))
    ]
    assert len(losses) == 3
    keys = weights(out / "model")
    assert {"vision_tower", "language_model"} <= {part for key in keys for part in key.split(".")}
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["recipe"]["canvas"]["size"] == recipe.canvas.size
    rows = read_predictions(out / "validation" / "step-000002")
    assert len(rows) > 0


def test_predictions_are_scored_in_both_profiles_and_shown_beside_the_base(finished, phantom_data, tmp_path):
    recipe, out = finished
    for name, asked in (
        ("tuned", {"weights": str(out)}),
        ("base", {"weights": recipe.model.checkpoint, "recipe": str(out / "model" / "recipe.yaml")}),
    ):
        infer(Request(data=phantom_data, split="test", out=tmp_path / name, name=name, **asked))
    runs = load_runs([tmp_path / "tuned", tmp_path / "base"])
    result = evaluate(runs, resamples=20)
    assert [system.name for system in result.systems] == ["tuned", "base"]
    assert all(system.published is not None and system.metrics for system in result.systems)
    count = len(list(read_records(phantom_data, "test")))
    assert len(read_predictions(tmp_path / "tuned")) == count
    assert all(row.error is None for row in read_predictions(tmp_path / "tuned"))


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_a_run_stopped_at_a_step_and_continued_is_the_uninterrupted_one(
    finished, make_paligemma_recipe, paligemma_generation, tmp_path, monkeypatch, kind
):
    """The released files name weights otherwise than the modules do: what is read must find its place."""
    recipe, straight = finished
    if kind == "full":
        recipe = make_paligemma_recipe("adapter={kind: full}", "freeze=[vision]", generation=paligemma_generation)
        straight = tmp_path / "straight"
        run(recipe, straight, silent)
    out = tmp_path / "again"
    real = train_run.callbacks
    monkeypatch.setattr(train_run, "callbacks", lambda *a, **k: [*real(*a, **k), AtStep(3, stop)])
    with pytest.raises(Stopped):
        run(recipe, out, silent)
    monkeypatch.undo()
    run(recipe, out, silent)
    expected, found = weights(straight / "model"), weights(out / "model")
    assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_the_best_checkpoint_becomes_the_model(make_paligemma_recipe, paligemma_generation, tmp_path, monkeypatch):
    """Of three checkpoints whose validation loss is said to rise, the first."""
    recipe = make_paligemma_recipe(
        "adapter={kind: full}", "train.save_steps=1", "train.keep_checkpoints=3", generation=paligemma_generation
    )
    said = iter((1.0, 2.0, 3.0))
    monkeypatch.setattr(validation, "validation_loss", lambda *arguments: next(said))
    out = tmp_path / "best"
    run(recipe, out, silent)
    first, last = (weights(out / "checkpoints" / f"checkpoint-{step}") for step in (1, 3))
    found = weights(out / "model")
    assert all(torch.equal(found[key], value) for key, value in first.items())
    assert any(not torch.equal(found[key], value) for key, value in last.items())


def test_checkpointing_trains_the_same_and_spares_the_frozen_tower(make_paligemma_recipe, tmp_path, monkeypatch):
    from transformers import PaliGemmaModel

    asked = []
    real = PaliGemmaModel.get_image_features

    def watched(self, *arguments, **keywords):
        output = real(self, *arguments, **keywords)
        asked.append(output.last_hidden_state.requires_grad)
        return output

    monkeypatch.setattr(PaliGemmaModel, "get_image_features", watched)
    for name in ("false", "true"):
        run(
            make_paligemma_recipe(f"train.gradient_checkpointing={name}", "data.validation=null"),
            tmp_path / name,
            silent,
        )
    plain, again = (weights(tmp_path / name / "model") for name in ("false", "true"))
    assert len(asked) == 6
    assert not any(asked)
    assert all(torch.allclose(again[key], value, atol=1e-5) for key, value in plain.items())


def test_a_checkpoint_without_a_weight_ends_the_run(make_paligemma_recipe, tmp_path):
    model = load_model(make_paligemma_recipe().model)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    kept = load_file(file)
    gone = sorted(kept)[-1]
    save_file({key: value for key, value in kept.items() if key != gone}, file, metadata={"format": "pt"})
    with pytest.raises(TrainingError, match="1 weights of the checkpoint do not fit the model"):
        load_whole(model, tmp_path)


@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_the_merged_folder_answers_as_the_adapter_on_its_base(
    make_paligemma_recipe, phantom_data, tmp_path, quantization
):
    recipe = make_paligemma_recipe(
        f"model.quantization={quantization}", "adapter.vision=true", "decoding.valid_boxes=true"
    )
    source = write_adapter_run(tmp_path / "run", recipe)
    check = merge(MergeRequest(run=str(source), out=tmp_path / "out"))
    assert check.ties == []
    records = list(read_records(phantom_data, "test"))[:2]
    batch = make_collator(recipe, folder_images(phantom_data), targets=True)(records)
    plain = load_model(make_paligemma_recipe(f"model.checkpoint={tmp_path / 'out'}").model)
    base = load_model(make_paligemma_recipe().model)
    assert (logits_of(plain, batch) - logits_of(base, batch)).abs().max() > 1e-3
    assert not list((tmp_path / "out").glob("adapter_*"))


def test_full_fine_tuning_trains_what_freeze_leaves(make_paligemma_recipe, paligemma_generation, tmp_path):
    recipe = make_paligemma_recipe(
        "adapter={kind: full}", "freeze=[vision,embeddings]", generation=paligemma_generation
    )
    run(recipe, tmp_path / "full", silent)
    before = load_file(f"{recipe.model.checkpoint}/model.safetensors")
    after = load_file(tmp_path / "full/model/model.safetensors")
    moved = {key for key, value in before.items() if not torch.equal(after[key], value)}
    parts = ("language_model", "multi_modal_projector", "vision_tower")
    assert {part for name in moved for part in parts if part in name} == set(parts[:2])
    assert not [name for name in moved if "embed_tokens" in name]
    shutil.rmtree(tmp_path / "full")
