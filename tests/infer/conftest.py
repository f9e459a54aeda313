"""Folders with weights, recipe and encoder, as training leaves them."""

import shutil

import pytest

from collators.encoder import build_encoder
from models.provenance import write_encoder
from models.qwen3_vl import load_processor
from tests.adapters import write_adapter_run


@pytest.fixture(scope="session")
def model_run(tiny, make_recipe, tmp_path_factory):
    """A run folder whose `model` is the whole tiny model; the recipe names it by its place."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    shutil.copytree(tiny, run / "model")
    recipe = make_recipe("adapter.kind=full", f"model.checkpoint={tiny}")
    write_encoder(run / "model", recipe, build_encoder(recipe, load_processor(recipe.model, recipe.images)))
    return run


@pytest.fixture(scope="session")
def adapter_run(tiny, make_recipe, tmp_path_factory):
    """A run folder whose `model` is an adapter with an effect on a base of its own (a copy of the tiny model)."""
    base = tmp_path_factory.mktemp("runs") / "base"
    shutil.copytree(tiny, base)
    return write_adapter_run(base.parent / "adapted", make_recipe(f"model.checkpoint={base}"))
