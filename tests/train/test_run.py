"""A run from recipe to folder: what it leaves, how it continues, what it refuses."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback

from benchmarks.dataset import load_info, read_records, write_dataset
from benchmarks.errors import DataError
from benchmarks.locking import locked
from infer.load import load_system
from models.provenance import read_encoder
from recipes.errors import RecipeError
from tests.train.runs import Stopped, curve, silent
from train import callbacks
from train import run as train_run
from train.prepare import prepare
from train.run import run
from train.trainer import TrainingError


class StopAt(TrainerCallback):
    """Raises at the end of a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise Stopped


@pytest.fixture(scope="module")
def finished(make_recipe, tmp_path_factory):
    """A finished LoRA run with dropout, and the lines it printed."""
    lines: list[str] = []
    recipe = make_recipe("adapter.dropout=0.1", "train.max_steps=5")
    out = tmp_path_factory.mktemp("runs") / "straight"
    folder = run(recipe, out, lines.append)
    return recipe, out, folder, lines


def test_plan_is_printed_before_the_first_step(finished):
    _, _, _, lines = finished
    text = "\n".join(lines)
    assert "lora" in text
    assert "parameters trained" in text
    assert "supervised tokens" in text
    assert "image tokens" in text
    assert "5 steps of 4 samples" in text


def test_the_folder_is_complete_and_ordinary(finished, tiny, phantom_data, tmp_path):
    """Copied elsewhere it loads with plain peft and transformers, and changes the base's answer."""
    _, _, folder, _ = finished
    copy = shutil.copytree(folder, tmp_path / "copy")
    processor = AutoProcessor.from_pretrained(copy)
    base = AutoModelForImageTextToText.from_pretrained(tiny)
    inputs = processor.tokenizer("user", return_tensors="pt")
    inputs["mm_token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    before = base(**inputs).logits
    after = PeftModel.from_pretrained(base, copy)(**inputs).logits
    assert float((after - before).detach().abs().max()) > 1e-3
    assert not list(copy.glob("*.bin"))
    assert "not for clinical use" in (copy / "README.md").read_text().lower()
    assert read_encoder(copy).fingerprint


def test_adapter_touches_the_language_model_only(finished):
    _, _, folder, _ = finished
    keys = load_file(folder / "adapter_model.safetensors")
    assert keys
    assert not [key for key in keys if "visual" in key or "merger" in key]


def test_manifest_tells_the_run(finished, phantom_data):
    recipe, out, _, _ = finished
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["dataset_hash"] == load_info(phantom_data).content_hash
    assert manifest["steps"] == 5
    assert manifest["recipe"] == recipe.model_dump(mode="json")
    counts = manifest["supervised_tokens_per_sample"]
    records = list(read_records(phantom_data, "train"))
    assert set(counts) == {record.task for record in records}
    assert all(1 < task["min"] <= task["mean"] <= task["max"] for task in counts.values())
    total = sum(task["mean"] * sum(record.task == name for record in records) for name, task in counts.items())
    assert manifest["supervised_tokens"] == pytest.approx(total, abs=0.01 * len(records))
    assert 0 < manifest["trainable_parameters"] < manifest["parameters"]
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in history if "loss" in entry] == [1, 2, 3, 4, 5]
    assert list((out / "tensorboard").iterdir())


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_interrupted_run_ends_with_the_same_weights(step, finished, tmp_path, monkeypatch):
    """Stopped after any step (checkpoints at 2, 4 and 5) and started again: weights equal bit for bit."""
    recipe, _, straight, _ = finished
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "StopOnNaN", lambda: StopAt(step))
        with pytest.raises(Stopped):
            run(recipe, out, silent)
    lines: list[str] = []
    resumed = run(recipe, out, lines.append)
    assert ("continuing from checkpoint-" in "\n".join(lines)) == (step > 2)
    expected, got = (load_file(folder / "adapter_model.safetensors") for folder in (straight, resumed))
    assert expected.keys() == got.keys()
    assert all(torch.equal(expected[key], got[key]) for key in expected)
    assert curve(out) == curve(straight.parent)


def test_another_recipe_is_refused_with_the_difference(finished, make_recipe):
    _, out, _, _ = finished
    with pytest.raises(RecipeError, match=r"recipe.train.learning_rate: 0.005 -> 0.1"):
        run(make_recipe("adapter.dropout=0.1", "train.max_steps=5", "train.learning_rate=0.1"), out, silent)


def test_a_finished_run_is_left_alone(finished):
    recipe, out, folder, _ = finished
    before = (folder / "adapter_model.safetensors").stat().st_mtime_ns
    lines: list[str] = []
    assert run(recipe, out, lines.append) == folder
    assert "is finished: nothing to do" in lines[-1]
    assert (folder / "adapter_model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("newest", [4, 5])
def test_a_run_killed_around_its_last_save_takes_no_step_too_many(newest, finished, tmp_path):
    """The manifest is missing; the checkpoint of the last step is whole, or was torn while it was written."""
    recipe, out, straight, _ = finished
    copy = shutil.copytree(out, tmp_path / "run")
    (copy / "manifest.json").unlink()
    shutil.rmtree(copy / "model")
    if newest == 4:
        (copy / "checkpoints/checkpoint-5/trainer_state.json").write_text('{"half": ')
        (copy / "checkpoints/checkpoint-5/checkpoint.json").unlink()
    lines: list[str] = []
    resumed = run(recipe, copy, lines.append)
    assert f"continuing from checkpoint-{newest}" in lines
    expected, got = (load_file(folder / "adapter_model.safetensors") for folder in (straight, resumed))
    assert all(torch.equal(expected[key], got[key]) for key in expected)
    manifest = json.loads((copy / "manifest.json").read_text())
    assert manifest["steps"] == 5
    assert manifest["loss"] > 0
    assert not list(resumed.glob("optimizer*"))
    assert sorted(path.name for path in (copy / "checkpoints").iterdir()) == ["checkpoint-4", "checkpoint-5"]


@pytest.mark.parametrize(
    ("key", "value"), [("dataset_hash", "0" * 64), ("base_weights_hash", "1" * 64), ("processes", 8)]
)
def test_other_data_base_or_world_size_is_refused(key, value, finished, tmp_path):
    recipe, out, _, _ = finished
    copy = shutil.copytree(out, tmp_path / "run")
    marker = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(marker | {key: value}))
    with pytest.raises(RecipeError, match=f"holds another run: {key}: "):
        run(recipe, copy, silent)


def test_a_second_writer_is_refused(make_recipe, tmp_path):
    with locked(tmp_path / "run", needed=True), pytest.raises(DataError, match="another process is writing"):
        run(make_recipe(), tmp_path / "run", silent)


def test_a_full_disk_is_a_message(make_recipe, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "checkpoint-2/optimizer.pt")

    monkeypatch.setattr(train_run.GroundedTrainer, "_save_checkpoint", full)
    with pytest.raises(TrainingError, match="No space left on device") as error:
        run(make_recipe(), tmp_path / "run", silent)
    assert "continues from the newest whole checkpoint" in str(error.value)


def test_running_out_of_memory_says_what_helps(make_recipe, tmp_path, monkeypatch):
    def burst(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(train_run.GroundedTrainer, "compute_loss", burst)
    with pytest.raises(TrainingError, match="out of memory on a batch of 4 rows") as error:
        run(make_recipe(), tmp_path / "run", silent)
    assert "train.gradient_checkpointing" in str(error.value)


def test_full_precision_needs_full_precision_weights(make_recipe):
    with pytest.raises(RecipeError, match=r"needs model.dtype float32, not bfloat16"):
        prepare(make_recipe("model.dtype=bfloat16"), silent)


def test_trained_weights_are_kept_in_float32(make_recipe):
    """A step of 1e-5 on a bfloat16 weight rounds to nothing."""
    recipe = make_recipe("adapter.kind=full", "freeze=[vision]", "model.dtype=bfloat16", "train.precision=bf16")
    model = prepare(recipe, silent).model
    assert {parameter.dtype for parameter in model.parameters() if parameter.requires_grad} == {torch.float32}
    assert {parameter.dtype for parameter in model.parameters() if not parameter.requires_grad} == {torch.bfloat16}


def test_another_prompt_text_is_refused_on_resume(make_recipe, tmp_path):
    prompt = tmp_path / "prompt.yaml"
    prompt.write_text('user: "{question}"')
    recipe = make_recipe(f"prompt.file={prompt}", "train.max_steps=1")
    run(recipe, tmp_path / "run", silent)
    prompt.write_text('user: "Please: {question}"')
    with pytest.raises(RecipeError, match="another encoder: user: "):
        run(recipe, tmp_path / "run", silent)


def test_a_model_folder_brings_its_prompt_file(make_recipe, tmp_path):
    prompt = tmp_path / "prompt.yaml"
    prompt.write_text('user: "Look: {question}"')
    folder = run(make_recipe(f"prompt.file={prompt}", "train.max_steps=1"), tmp_path / "run", silent)
    moved = shutil.copytree(folder, tmp_path / "moved")
    prompt.unlink()
    shutil.rmtree(tmp_path / "run")
    system = load_system(str(moved), recipe_path=None, overrides=())
    assert system.encoder.template.user == "Look: {question}"


def test_full_fine_tuning_leaves_a_plain_checkpoint(make_recipe, tiny, tmp_path):
    """Frozen groups stay bit-equal, the rest moves."""
    recipe = make_recipe("adapter.kind=full", "freeze=[vision, projector]", "train.optimizer=muon")
    folder = run(recipe, tmp_path / "run", silent)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    base = AutoModelForImageTextToText.from_pretrained(tiny)
    same = {n: torch.equal(p, q) for (n, p), q in zip(model.named_parameters(), base.parameters(), strict=True)}
    assert all(equal for name, equal in same.items() if ".visual." in name)
    assert not all(equal for name, equal in same.items() if ".language_model.layers." in name)


def test_muon_run_resumes_bit_equal(make_recipe, tmp_path, monkeypatch):
    recipe = make_recipe("adapter.kind=full", "train.optimizer=muon", "train.max_steps=4")
    straight = run(recipe, tmp_path / "straight", silent)
    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "StopOnNaN", lambda: StopAt(3))
        with pytest.raises(Stopped):
            run(recipe, tmp_path / "resumed", silent)
    resumed = run(recipe, tmp_path / "resumed", silent)
    expected, got = (load_file(folder / "model.safetensors") for folder in (straight, resumed))
    assert all(torch.equal(expected[key], got[key]) for key in expected)


def test_gradient_checkpointing_changes_nothing(make_recipe, tmp_path):
    folders = [
        run(make_recipe(f"train.gradient_checkpointing={on}", "adapter.dropout=0.0"), tmp_path / on, silent)
        for on in ("true", "false")
    ]
    with_it, without = (load_file(folder / "adapter_model.safetensors") for folder in folders)
    assert all(torch.allclose(with_it[key], without[key], atol=1e-6) for key in without)


def test_overlong_samples_are_an_error_or_counted(make_recipe, phantom_data, tmp_path):
    with pytest.raises(DataError, match=r"over batch.max_length 60; images are never cut"):
        run(make_recipe("batch.max_length=60"), tmp_path / "error", silent)
    lines: list[str] = []
    run(make_recipe("batch.max_length=60", "batch.overlong=drop"), tmp_path / "drop", lines.append)
    dropped = json.loads((tmp_path / "drop" / "manifest.json").read_text())["dropped"]
    total = load_info(phantom_data).counts["train"]
    assert 0 < len(dropped) < sum(total.values())
    assert f"{len(dropped)} over-long samples dropped" in "\n".join(lines)


def test_a_loss_that_is_not_a_number_stops_the_run(make_recipe, tmp_path):
    with pytest.raises(TrainingError, match="lower train") as error:
        run(
            make_recipe("train.learning_rate=1.0e+30", "train.clip_norm=1.0e+30", "train.max_steps=6"),
            tmp_path / "r",
            silent,
        )
    assert "nan" in str(error.value)


def test_a_group_in_both_splits_is_refused_at_training(make_recipe, phantom_data, tmp_path):
    """Also if the record files were put together without our preparation."""
    records = list(read_records(phantom_data, "train"))[:4]
    info = load_info(phantom_data)
    data = tmp_path / "data"
    write_dataset(
        data,
        records,
        name="x",
        benchmark=info.benchmark,
        reader=info.reader,
        image_root=phantom_data.parent / "release",
        sources={},
    )
    with pytest.raises(DataError, match="no split 'val'"):
        run(make_recipe(f"data.dataset={data}"), tmp_path / "run", silent)
    with pytest.raises(DataError, match="both"):
        run(make_recipe(f"data.dataset={data}", "data.validation=train"), tmp_path / "run2", silent)
