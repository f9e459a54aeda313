"""Several runs in one command: the base is loaded once, and every folder is as if its run were alone."""

import shutil
import sys

import msgspec
import pytest

import models.qwen3_vl as family
from benchmarks.predictions import PREDICTIONS, read_manifest
from infer.__main__ import main
from infer.load import Loader, describe
from infer.run import Request, run, run_all
from models.qwen3_vl import load_model
from models.vision_key import patch_layer
from recipes.errors import UserError, run_command
from tests.adapters import write_adapter_run


@pytest.fixture(scope="module")
def runs(tiny, make_recipe, model_run, tmp_path_factory):
    """Name -> run: four adapters on one base (two with more than an adapter), one on another, one whole model."""
    folder = tmp_path_factory.mktemp("several")
    bases = {name: shutil.copytree(tiny, folder / name) for name in ("base", "other-base")}

    def adapted(name, base, *overrides):
        recipe = make_recipe(f"model.checkpoint={bases[base]}", *overrides)
        return write_adapter_run(folder / name, recipe, seed=len(name))

    return {
        "first": adapted("first", "base"),
        "all-trained": adapted("all-trained", "base", "adapter.train_also=[projector,embeddings,head]"),
        "elsewhere": adapted("elsewhere", "other-base"),
        "narrow": adapted("narrow", "base", "adapter.rank=4", "adapter.roles=[attention]"),
        "whole": model_run,
        "projected": adapted("projected", "base", "adapter.train_also=[projector]"),
    }


def request(weights, data, out, **changes):
    values = {"data": data, "split": "test", "limit": 5, "overrides": ("decoding.max_new_tokens=8",)}
    return Request(weights=str(weights), out=out, **{**values, **changes})


def content(folder):
    """Rows as bytes, and the manifest without what time decides."""
    manifest = msgspec.structs.replace(read_manifest(folder), timing={})
    return (folder / PREDICTIONS).read_bytes(), manifest


@pytest.fixture
def loads(monkeypatch):
    """Checkpoints loaded so far."""
    seen = []

    def counting(model, **options):
        seen.append(model.checkpoint)
        return load_model(model, **options)

    monkeypatch.setattr(family, "load_model", counting)
    return seen


def test_each_of_several_runs_answers_as_it_does_alone(runs, phantom_data, tmp_path, loads):
    folders = run_all([request(each, phantom_data, tmp_path / "together" / name) for name, each in runs.items()])
    assert folders == [tmp_path / "together" / name for name in runs]
    assert len(loads) == len(set(loads)) == 3
    together = {folder.name: content(folder) for folder in folders}
    for name, each in runs.items():
        assert together[name] == content(run(request(each, phantom_data, tmp_path / "alone" / name))), name
    assert len({rows for rows, _ in together.values()}) == len(runs)


def test_a_base_changed_for_shared_prefixes_is_not_lent_to_a_run_without(runs, loads):
    loader, layers = Loader(), []
    for share in ("true", "true", "false"):
        overrides = [f"decoding.share_images={share}"]
        layers.append(
            patch_layer(loader.load(describe(str(runs["first"]), recipe_path=None, overrides=overrides)).model)
        )
    assert layers == ["PatchProduct", "PatchProduct", "Conv3d"]
    assert len(loads) == 2


def test_a_finished_folder_is_not_predicted_again(runs, phantom_data, tmp_path):
    requests = [request(runs[name], phantom_data, tmp_path / name) for name in ("first", "narrow")]
    run(requests[0])
    before = (tmp_path / "first" / PREDICTIONS).stat().st_mtime_ns
    run_all(requests)
    assert (tmp_path / "first" / PREDICTIONS).stat().st_mtime_ns == before


# Mixed adapters: a message before the first prediction.


def refused(requests, tmp_path, message):
    with pytest.raises(UserError, match=message) as raised:
        run_all(requests)
    assert raised.value.fix
    assert not list(tmp_path.glob("out/**/predictions.jsonl"))
    return raised.value


def test_two_runs_of_one_name_are_refused(runs, phantom_data, tmp_path):
    twin = shutil.copytree(runs["narrow"], tmp_path / "first")
    pair = [request(each, phantom_data, tmp_path / "out" / "first") for each in (runs["first"], twin)]
    error = refused(pair, tmp_path, "are both named first: one would overwrite the other's predictions")
    assert str(twin) in error.message
    assert str(runs["first"]) in error.message


def test_an_adapter_of_another_base_is_refused_before_the_first_prediction(runs, phantom_data, tmp_path):
    """pitfall 29: shapes fit all the same."""
    from safetensors.torch import load_file, save_file

    base = shutil.copytree(runs["first"].parent / "base", tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    overrides = (f"model.checkpoint={base}",)
    pair = [
        request(runs["first"], phantom_data, tmp_path / "out" / "first"),
        request(runs["narrow"], phantom_data, tmp_path / "out" / "narrow", overrides=overrides),
    ]
    refused(pair, tmp_path, "are not those this adapter was trained on")


def test_an_adapter_of_another_encoder_is_refused_before_the_first_prediction(
    runs, make_recipe, phantom_data, tmp_path
):
    recipe = make_recipe("prompt.template=plain")
    other = write_adapter_run(tmp_path / "other", recipe)
    pair = [
        request(runs["first"], phantom_data, tmp_path / "out" / "first"),
        request(other, phantom_data, tmp_path / "out" / "other", overrides=("images.max_pixels=50176",)),
    ]
    refused(pair, tmp_path, "the encoder differs")


def _rename(weights):
    return {name.replace("language_model", "text_model"): weight for name, weight in weights.items()}


def _widen(weights):
    import torch

    return {name: torch.cat([weight, weight], dim=1) for name, weight in weights.items()}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(_rename, "28 weights missing .* 28 weights without a place"), (_widen, "28 weights of another shape")],
    ids=["keys renamed", "another width"],
)
def test_an_adapter_that_does_not_fit_ends_the_command_and_keeps_what_is_done(
    runs, phantom_data, tmp_path, spoil, message
):
    """pitfall 29."""
    from safetensors.torch import load_file, save_file

    bad = shutil.copytree(runs["first"], tmp_path / "bad")
    path = bad / "model" / "adapter_model.safetensors"
    save_file(spoil(load_file(path)), path)
    requests = [
        request(each, phantom_data, tmp_path / "out" / each.name) for each in (runs["narrow"], bad, runs["first"])
    ]
    with pytest.raises(UserError, match=message) as raised:
        run_all(requests)
    assert raised.value.where == str(bad / "model")
    assert read_manifest(tmp_path / "out" / "narrow").records == 5
    assert not (tmp_path / "out" / "bad").exists()


# The command line.


def test_the_command_names_every_folder_and_the_comparison(runs, phantom_data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [str(runs["first"]), str(runs["narrow"] / "model"), "decoding.max_new_tokens=2", "--limit", "2"]
    monkeypatch.setattr(sys, "argv", ["infer", *words, "--data", str(phantom_data), "--out", "compared"])
    assert run_command(main) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "predictions: compared/first",
        "predictions: compared/narrow",
        "next: python -m eval compared/first compared/narrow --html report.html",
    ]
    assert read_manifest(tmp_path / "compared" / "first").decoding["max_new_tokens"] == 2


def test_without_out_each_run_has_its_usual_folder(runs, phantom_data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A path may hold an equals sign; an override has none before its own.
    shutil.copytree(runs["first"], tmp_path / "runs" / "rank=16")
    words = ["runs/rank=16", "decoding.max_new_tokens=2", str(runs["narrow"]), "--limit", "1"]
    monkeypatch.setattr(sys, "argv", ["infer", *words, "--data", str(phantom_data), "--control", "blank_image"])
    assert run_command(main) == 0
    folder = "runs/predictions"
    names = [f"{folder}/{name}-blank_image-data-test" for name in ("rank=16", "narrow")]
    assert f"next: python -m eval {names[0]} {names[1]} --html" in capsys.readouterr().out
