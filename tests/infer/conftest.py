"""Folders with weights, recipe and encoder, as training leaves them."""

import shutil

import pytest

from collators.encoder import build_encoder
from models.provenance import write_encoder
from models.qwen3_vl import adapt, load_model, load_processor


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
    import torch

    run = tmp_path_factory.mktemp("runs") / "adapted"
    base = run.parent / "base"
    shutil.copytree(tiny, base)
    recipe = make_recipe(f"model.checkpoint={base}")
    processor = load_processor(recipe.model, recipe.images)
    model = adapt(load_model(recipe.model), recipe.adapter, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2, generator=generator)
    model.save_pretrained(run / "model")
    processor.save_pretrained(run / "model")
    write_encoder(run / "model", recipe, build_encoder(recipe, processor))
    return run
