"""A run that starts from the adapter of another."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.errors import DataError
from models.provenance import weights_hash
from recipes.errors import RecipeError, UserError
from tests.adapters import write_adapter_run
from train.run import run


def silent(line: str) -> None:
    """Takes the place of print."""


@pytest.fixture(scope="module")
def first(make_recipe, tmp_path_factory):
    """The run to start from."""
    return write_adapter_run(tmp_path_factory.mktemp("first") / "first", make_recipe())


def weights(folder):
    return load_file(folder / "adapter_model.safetensors")


def test_the_first_step_is_taken_from_the_other_runs_weights(first, make_recipe, tmp_path):
    """With a step too small to see, the new adapter is the old one."""
    recipe = make_recipe(f"adapter.init={first}", "train.max_steps=1", "train.learning_rate=1e-12")
    folder = run(recipe, tmp_path / "run", silent)
    old, new = weights(first / "model"), weights(folder)
    assert all(torch.allclose(old[name], new[name], atol=1e-9) for name in old)
    anew = weights(run(make_recipe("train.max_steps=1", "train.learning_rate=1e-12"), tmp_path / "anew", silent))
    assert not all(torch.allclose(old[name], anew[name], atol=1e-3) for name in old)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["init_weights_hash"] == weights_hash(first / "model")
    assert json.loads((tmp_path / "anew" / "manifest.json").read_text())["init_weights_hash"] is None


def test_other_weights_to_start_from_are_another_run(first, make_recipe, tmp_path):
    copy = shutil.copytree(first, tmp_path / "copy")
    recipe = make_recipe(f"adapter.init={copy}", "train.max_steps=1")
    run(recipe, tmp_path / "run", silent)
    shutil.rmtree(copy)
    write_adapter_run(copy, make_recipe(), seed=9)
    with pytest.raises(RecipeError, match="holds another run: init_weights_hash: "):
        run(recipe, tmp_path / "run", silent)


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("prompt.template=plain", "user: '{task}: {question}' -> '{question}'"),
        ("images.max_pixels=50176", "max_pixels: 1003520 -> 50176"),
        ("codec=scintiground_old_json", "codec: 'scintiground_json' -> 'scintiground_old_json'"),
    ],
)
def test_another_encoder_is_refused_with_the_difference(first, make_recipe, tmp_path, override, difference):
    with pytest.raises(UserError, match="the encoder differs") as raised:
        run(make_recipe(f"adapter.init={first}", override), tmp_path / "run", silent)
    assert difference in raised.value.message
    assert "adapter.init: null" in raised.value.fix
    assert not (tmp_path / "run").exists()


def test_another_base_is_refused(first, tiny, make_recipe, tmp_path):
    from safetensors.torch import save_file

    base = shutil.copytree(tiny, tmp_path / "base")
    changed = load_file(base / "model.safetensors")
    next(iter(changed.values())).view(-1)[0] += 1
    save_file(changed, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="are not those this adapter was trained on"):
        run(make_recipe(f"adapter.init={first}", f"model.checkpoint={base}"), tmp_path / "run", silent)


def test_another_form_is_refused(first, make_recipe, tmp_path):
    with pytest.raises(RecipeError, match=r"adapter\.rank: 16 -> 4"):
        run(make_recipe(f"adapter.init={first}", "adapter.rank=4"), tmp_path / "run", silent)


def test_an_adapter_that_says_nothing_of_its_encoder_is_refused(first, make_recipe, tmp_path):
    copy = shutil.copytree(first, tmp_path / "copy")
    (copy / "model" / "encoder.json").unlink()
    with pytest.raises(DataError, match=r"encoder\.json is missing"):
        run(make_recipe(f"adapter.init={copy}"), tmp_path / "run", silent)


def test_a_folder_without_an_adapter_is_named(tiny, make_recipe, tmp_path):
    with pytest.raises(RecipeError, match=r"holds no adapter_config\.json"):
        run(make_recipe(f"adapter.init={tiny}"), tmp_path / "run", silent)
