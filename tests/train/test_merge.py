"""`python -m train merge`: the merged folder answers as the adapter on its base, or there is no folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

import train.merge
from benchmarks.dataset import load_info, read_records
from collators.qwen3_vl import Qwen3VLCollator
from infer.load import describe, load_system
from models.adapters import load_adapter
from models.provenance import read_encoder, weights_hash
from models.qwen3_vl import adapt, load_model
from recipes.errors import UserError, run_command
from tests.adapters import logits_of, steps, untie, write_adapter_run, write_run
from tests.collators.samples import folder_images, make_collator, pictures, plain_record
from train.__main__ import main
from train.merge import Request, merge
from train.merge_check import MergeError, Observed, check_records, compare

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def batch(make_recipe, phantom_data):
    """Two records to learn."""
    records = list(read_records(phantom_data, "test"))[:2]
    return make_collator(make_recipe(), folder_images(phantom_data), targets=True)(records)


@pytest.fixture(scope="module")
def lora(make_recipe, tmp_path_factory):
    """A run with an adapter alone, in float32."""
    return write_adapter_run(tmp_path_factory.mktemp("lora") / "lora", make_recipe())


@pytest.fixture(scope="module")
def merged(lora):
    """That run, merged; what the check found."""
    out = lora.parent / "merged"
    return out, merge(Request(run=str(lora), out=out))


def plain(folder):
    """The folder as plain transformers loads it."""
    return AutoModelForImageTextToText.from_pretrained(folder)


def answers(folder, data, *overrides):
    system = load_system(str(folder), recipe_path=None, overrides=overrides)
    records = list(read_records(data, "test"))[:6]
    return [generated.text for generated in system.engine(folder_images(data)).generate(records)]


def nothing_left(out):
    """No folder, and nothing half made beside it."""
    return not out.exists() and not list(out.parent.glob(f".{out.name}*"))


# What is made.


def test_the_merged_folder_is_a_plain_checkpoint_with_the_adapters_logits(merged, lora, make_recipe, batch):
    out, check = merged
    recipe = make_recipe()
    expected = logits_of(load_adapter(load_model(recipe.model), lora / "model"), batch)
    model = plain(out)
    assert torch.allclose(logits_of(model, batch), expected, atol=1e-4)
    assert (expected - logits_of(load_model(recipe.model), batch)).abs().max() > 1e-3
    assert not list(out.glob("adapter_*"))
    assert not list(out.glob("*.bin"))
    assert check.difference < 1e-4 < check.effect
    assert check.ties == []
    assert nothing_left(out.with_name("other"))
    assert not list(out.parent.glob(".*.part"))


def test_it_predicts_what_the_run_predicts(merged, lora, phantom_data):
    out, _ = merged
    assert answers(out, phantom_data) == answers(lora, phantom_data)
    assert read_encoder(out).fingerprint == read_encoder(lora / "model").fingerprint


def test_its_settings_are_the_bases_and_not_those_of_the_check(merged, tiny):
    out, _ = merged
    for name in ("generation_config.json", "chat_template.jinja"):
        assert (out / name).read_text() == (tiny / name).read_text()
    config = json.loads((out / "config.json").read_text())
    assert config.get("use_cache") is not False
    assert config["text_config"]["tie_word_embeddings"] is True


def test_manifest_and_card_say_what_was_merged_and_checked(merged, lora, tiny, phantom_data):
    out, check = merged
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["adapter_weights_hash"] == weights_hash(lora / "model")
    assert manifest["base_weights_hash"] == weights_hash(tiny)
    assert manifest["weights_hash"] == weights_hash(out)
    assert manifest["precision"] == {"base": "float32", "sum": "float32", "written": "float32", "compared": "float32"}
    assert manifest["tied_embeddings"] is True
    assert manifest["check"]["dataset_hash"] == load_info(phantom_data).content_hash
    validation = {record.id for record in read_records(phantom_data, "val")}
    assert len(check.records) == 4
    assert set(manifest["check"]["records"]) == set(check.records) <= validation
    assert manifest["check"]["tolerance"] == 1e-4
    card = (out / "README.md").read_text()
    assert "Not for clinical use" in card
    assert "all 4 texts equal" in card


def test_records_to_check_are_of_every_task(make_recipe, phantom_data):
    tasks = {record.task for record in read_records(phantom_data, "val")}
    assert len(tasks) == 3
    assert {record.task for record in check_records(make_recipe(), phantom_data)} == tasks


@pytest.mark.parametrize(
    ("also", "tie"),
    [("[embeddings]", "untied"), ("[projector,embeddings,head]", "tied"), ("[projector,embeddings,head]", "untied")],
)
def test_whatever_was_trained_beside_the_adapter_is_merged(make_recipe, tiny, batch, tmp_path, also, tie):
    checkpoint = tiny if tie == "tied" else untie(tiny, tmp_path / "untied")
    recipe = make_recipe(f"adapter.train_also={also}", f"model.checkpoint={checkpoint}")
    run = write_adapter_run(tmp_path / "run", recipe)
    merge(Request(run=str(run), out=tmp_path / "out"))
    expected = logits_of(load_adapter(load_model(recipe.model), run / "model"), batch)
    model = plain(tmp_path / "out")
    assert torch.allclose(logits_of(model, batch), expected, atol=1e-4)
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == (tie == "tied")


IN_A_NEW_PROCESS = """
import sys
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText
model = AutoModelForImageTextToText.from_pretrained(sys.argv[1]).eval()
save_file({"logits": model(**load_file(sys.argv[2])).logits.detach()}, sys.argv[3])
"""


def fresh_process(code, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *map(str, words)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_tied_matrices_that_were_trained_survive_merging_and_a_new_process(make_recipe, batch, tmp_path):
    """pitfall 30: both named, two steps, merged, loaded by plain transformers in a process of its own."""
    recipe = make_recipe("adapter.train_also=[embeddings,head]")
    trained = adapt(load_model(recipe.model), recipe.adapter, seed=0)
    steps(trained, batch)
    run = write_run(tmp_path / "run", recipe, trained)
    merge(Request(run=str(run), out=tmp_path / "out"))
    inputs = {key: value for key, value in batch.items() if key not in ("labels", "logits_to_keep")}
    save_file(inputs, tmp_path / "inputs.safetensors")
    fresh_process(IN_A_NEW_PROCESS, tmp_path / "out", tmp_path / "inputs.safetensors", tmp_path / "logits.safetensors")
    logits = load_file(tmp_path / "logits.safetensors")["logits"]
    assert torch.allclose(logits, logits_of(trained, batch), atol=1e-4)


def test_a_tie_that_others_cut_is_recorded_as_cut(make_recipe, batch, tmp_path):
    """pitfall 30: an adapter trained by plain peft, which copied the shared matrix."""
    from peft import LoraConfig, get_peft_model

    recipe = make_recipe("adapter.train_also=[embeddings,head]")
    config = LoraConfig(
        r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"], task_type="CAUSAL_LM"
    )
    with pytest.warns(UserWarning, match="tie_word_embeddings"):
        cut = get_peft_model(load_model(recipe.model), config)
    steps(cut, batch, count=4)
    run = write_run(tmp_path / "run", recipe, cut)
    with pytest.warns(UserWarning, match="no longer tied|tie_word_embeddings"):
        merge(Request(run=str(run), out=tmp_path / "out"))
    assert torch.allclose(logits_of(plain(tmp_path / "out"), batch), logits_of(cut, batch), atol=1e-4)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["tied_embeddings"] is False


# Number types.


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_weights_are_checked_to_their_tolerance(lora, batch, tmp_path, dtype):
    check = merge(Request(run=str(lora), out=tmp_path / "out", dtype=dtype))
    assert {each.dtype for each in load_file(tmp_path / "out" / "model.safetensors").values()} == {
        getattr(torch, dtype)
    }
    assert 0 < check.difference <= check.tolerance * check.largest_logit
    system = load_system(str(tmp_path / "out"), recipe_path=None, overrides=())
    for model in (system.model, plain(tmp_path / "out")):
        assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {config["dtype"], config["text_config"]["dtype"], config["vision_config"]["dtype"]} == {dtype}


def test_an_adapter_that_rounding_hides_is_refused(make_recipe, tmp_path):
    run = write_adapter_run(tmp_path / "run", make_recipe(), size=2e-4)
    with pytest.raises(MergeError, match="what was learnt is lost") as raised:
        merge(Request(run=str(run), out=tmp_path / "out", dtype="bfloat16"))
    assert "--dtype float32" in raised.value.fix
    assert nothing_left(tmp_path / "out")
    assert merge(Request(run=str(run), out=tmp_path / "out")).difference < 1e-4


def test_weights_beyond_the_range_of_a_type_are_refused(make_recipe, tiny, tmp_path):
    base = shutil.copytree(tiny, tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    name = next(name for name in weights if name.endswith("layers.0.mlp.up_proj.weight"))
    weights[name][0, 0] = 1e5
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    run = write_adapter_run(tmp_path / "run", make_recipe(f"model.checkpoint={base}"))
    with pytest.raises(MergeError, match=r"up_proj\.weight is not finite in float16") as raised:
        merge(Request(run=str(run), out=tmp_path / "out", dtype="float16"))
    assert "--dtype bfloat16" in raised.value.fix
    assert nothing_left(tmp_path / "out")


def test_a_four_bit_run_is_merged_into_the_base_it_was_trained_on(make_recipe, batch, tmp_path):
    """pitfall 30, 4-bit base: the logits of training to 1e-4 in float32; the full weights' are far off.

    In training mode, for bitsandbytes predicts on some CPUs with a kernel that rounds to bfloat16 (2 % here).
    """
    recipe = make_recipe("model.quantization=nf4", "adapter.train_also=[embeddings,head]")
    run = write_adapter_run(tmp_path / "run", recipe)
    check = merge(Request(run=str(run), out=tmp_path / "out"))
    inputs = {key: value for key, value in batch.items() if key not in ("labels", "logits_to_keep")}
    with torch.no_grad():
        trained = load_adapter(load_model(recipe.model), run / "model").train()(**inputs).logits
    merged = logits_of(plain(tmp_path / "out"), batch)
    predicted = logits_of(load_adapter(load_model(recipe.model), run / "model"), batch)
    full = logits_of(load_adapter(load_model(make_recipe().model), run / "model"), batch)
    assert (merged - trained).abs().max() < 1e-4
    assert (merged - predicted).abs().max() < 0.02 * trained.abs().max()
    assert (full - trained).abs().max() > 0.1 * trained.abs().max()
    assert check.difference < 1e-4
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["precision"]["base"] == "nf4, dequantised to float32"
    assert manifest["recipe"]["model"]["quantization"] == "nf4"
    assert load_system(str(tmp_path / "out"), recipe_path=None, overrides=()).recipe.model.quantization == "none"


def test_the_recipes_type_is_the_default(make_recipe, tmp_path):
    recipe = make_recipe("model.dtype=bfloat16", "train.precision=bf16")
    run = write_adapter_run(tmp_path / "run", recipe)
    check = merge(Request(run=str(run), out=tmp_path / "out"))
    assert plain(tmp_path / "out").dtype == torch.bfloat16
    assert check.tolerance == 5e-2


# What is refused; nothing is left.


def test_a_merge_that_went_wrong_leaves_no_folder(lora, tmp_path, monkeypatch):
    def forgets(adapted, dtype, folder):
        return adapted.unload().to(dtype)

    monkeypatch.setattr(train.merge, "_merged", forgets)
    with pytest.raises(MergeError, match=r"logits of the merged model are .* from the unmerged one's") as raised:
        merge(Request(run=str(lora), out=tmp_path / "out"))
    assert "nothing was kept" in raised.value.fix
    assert nothing_left(tmp_path / "out")
    assert (lora / "model" / "adapter_model.safetensors").is_file()


def test_a_disk_that_fills_up_leaves_no_folder(lora, tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(train.merge, "write_atomic", full)
    with pytest.raises(MergeError, match=r"cannot be written: .*No space left on device"):
        merge(Request(run=str(lora), out=tmp_path / "out"))
    assert nothing_left(tmp_path / "out")


def test_a_disk_that_is_too_small_is_said_before_writing(lora, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(MergeError, match=r"needs 0\.0 GB, 0\.0 GB are free"):
        merge(Request(run=str(lora), out=tmp_path / "out"))
    assert nothing_left(tmp_path / "out")


def test_a_full_folder_is_refused_and_an_empty_one_taken(lora, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(UserError, match="exists already") as raised:
            merge(Request(run=str(lora), out=tmp_path / name))
        assert raised.value.where == "--out"
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["note.txt"]
    (tmp_path / "empty").mkdir()
    merge(Request(run=str(lora), out=tmp_path / "empty"))
    assert (tmp_path / "empty" / "config.json").is_file()


def test_a_whole_model_has_nothing_to_merge(merged, tmp_path):
    with pytest.raises(UserError, match="holds no adapter: its model is whole already"):
        merge(Request(run=str(merged[0]), out=tmp_path / "out"))


def test_several_processes_are_refused(lora, tmp_path, monkeypatch):
    monkeypatch.setattr(train.merge, "process_state", lambda: SimpleNamespace(num_processes=2))
    with pytest.raises(UserError, match="the work of one process"):
        merge(Request(run=str(lora), out=tmp_path / "out"))


def test_a_missing_dataset_is_named_and_another_is_taken(lora, phantom_data, tmp_path):
    run = shutil.copytree(lora, tmp_path / "run")
    recipe = run / "model" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(str(phantom_data), "data/gone"))
    with pytest.raises(UserError, match="there is no dataset data/gone") as raised:
        merge(Request(run=str(run), out=tmp_path / "out"))
    assert "--data" in raised.value.fix
    assert merge(Request(run=str(run), out=tmp_path / "out", data=phantom_data)).dataset == str(phantom_data)


def test_an_unreadable_image_is_named(lora, phantom_release, tmp_path):
    from benchmarks.prepare import prepare

    release = shutil.copytree(phantom_release, tmp_path / "release")
    prepare("scintiground", release, tmp_path / "data")
    for image in release.rglob("*.jpg"):
        image.unlink()
    with pytest.raises(MergeError, match=r"the model cannot answer: image .* does not exist"):
        merge(Request(run=str(lora), out=tmp_path / "out", data=tmp_path / "data"))


def seen(*rows):
    return [torch.tensor([row]) for row in rows]


def test_the_comparison_sees_logits_that_are_not_numbers_and_texts_without_a_reason(phantom_data):
    records = list(read_records(phantom_data, "val"))[:2]
    base = seen([0.0, 1.0], [0.0, 1.0])
    before = Observed(["a", "b"], [], seen([2.0, 1.0], [2.0, 1.0]))

    def compared(texts, *rows):
        return compare(phantom_data, records, base, before, Observed(texts, [], seen(*rows)), "float32")

    assert compared(["a", "b"], [2.0, 1.0], [2.0, 1.0]).difference == 0
    with pytest.raises(MergeError, match="logits of the merged model are nan"):
        compared(["a", "b"], [2.0, 1.0], [float("nan"), 1.0])
    with pytest.raises(MergeError, match="another text although its logits agree") as raised:
        compared(["a", "c"], [2.0, 1.0], [2.0, 1.0])
    assert raised.value.where == f"record {records[1].id}"


def test_texts_that_part_at_a_tie_are_counted(phantom_data):
    records = list(read_records(phantom_data, "val"))[:1]
    before = Observed(["a"], [], seen([1.0, 1.00001, 0.0]))
    after = Observed(["b"], [], seen([1.00001, 1.0, 0.0]))
    check = compare(phantom_data, records, seen([0.0, 0.0, 0.0]), before, after, "float32")
    assert check.ties == [records[0].id]


# The command line.


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["train", *map(str, words)])
    status = run_command(main)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_says_what_was_checked_and_what_comes_next(lora, phantom_data, tmp_path, monkeypatch, capsys):
    status, out, _ = command(monkeypatch, capsys, "merge", lora, "--out", tmp_path / "out", "--dtype", "float32")
    assert status == 0
    lines = out.splitlines()[-3:]
    assert lines[0].startswith("checked on 4 records: all 4 texts equal; logits differ by at most ")
    assert lines[1].startswith(f"merged model: {tmp_path / 'out'} ")
    assert lines[2] == f"next: python -m infer {tmp_path / 'out'} --data {phantom_data} --split test"


def test_a_mistake_is_one_message(merged, tmp_path, monkeypatch, capsys):
    status, _, error = command(monkeypatch, capsys, "merge", merged[0], "--out", tmp_path / "out")
    assert status == 2
    assert error.startswith("UserError: ")
    assert "  do: " in error


@pytest.mark.parametrize("words", [["merge", "--help"], ["--help"]], ids=["merge", "train"])
def test_help_says_how_precise_merging_is_and_that_it_exists(words, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, capsys, *words)
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "train merge" in said
    assert "--out" in said
    if words[0] == "merge":
        assert "4-bit weights, dequantised" in said
        assert "1e-4 (float32), 1e-2 (float16) or 5e-2 (bfloat16)" in said


def test_a_recipe_is_still_trained_by_its_name(monkeypatch, capsys):
    status, _, error = command(monkeypatch, capsys, "demo/merged")
    assert status == 2
    assert "no recipe 'demo/merged'" in error


# The folder alone.


def test_a_folder_alone_and_offline_prepares_a_record_as_its_training_did(make_recipe, tmp_path, monkeypatch):
    """pitfall 31: an adapter and a merged folder, trained with another pixel limit than the base's."""
    import huggingface_hub.constants

    recipe = make_recipe("images.max_pixels=200000", "codec=plain", "prompt.template=plain")
    record = plain_record("Where?", images=(("a", 640, 640),))
    expected = make_collator(recipe, pictures([record]), targets=False)([record])
    assert int(expected["image_grid_thw"].prod()) * 16**2 <= 200_000
    run = write_adapter_run(tmp_path / "run", recipe)
    merge(Request(run=str(run), out=tmp_path / "merged"))
    (tmp_path / "merged").rename(tmp_path / "elsewhere")
    (run / "model").rename(tmp_path / "alone")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name in ("elsewhere", "alone"):
        known = describe(str(tmp_path / name), recipe_path=None, overrides=())
        found = Qwen3VLCollator(known.encoder, known.processor, pictures([record]), targets=False)([record])
        assert all(torch.equal(found[key], value) for key, value in expected.items()), name
