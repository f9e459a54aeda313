"""Adapter folders for tests, as training leaves them, and what a model says."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import Tensor, nn

from collators.encoder import build_encoder
from models.provenance import write_encoder
from models.registry import family_module
from recipes.schema import Recipe


def logits_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """float32[B, L, V] of a batch with or without targets."""
    inputs = {key: value for key, value in batch.items() if key not in ("labels", "logits_to_keep")}
    with torch.inference_mode():
        return model.eval()(**inputs).logits


def steps(model: nn.Module, batch: dict[str, Tensor], count: int = 2) -> None:
    """Plain gradient steps over whatever may be trained."""
    inputs = {key: value for key, value in batch.items() if key != "logits_to_keep"}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model.train()
    for _ in range(count):
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()


def write_run(run: Path, recipe: Recipe, model: nn.Module) -> Path:
    """Saves an adapted model as `run/model`, with processor, recipe and encoder; returns the run."""
    processor = family_module(recipe.model.family).load_processor(recipe.model, recipe.images)
    model.save_pretrained(run / "model")
    processor.save_pretrained(run / "model")
    write_encoder(run / "model", recipe, build_encoder(recipe, processor))
    return run


def write_adapter_run(run: Path, recipe: Recipe, *, seed: int = 1, size: float = 0.2) -> Path:
    """A run with an adapter whose effect on the answers is plain; what is trained beside it moves too."""
    family = family_module(recipe.model.family)
    model = family.adapt(family.load_model(recipe.model), recipe.adapter, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=size, generator=generator)
            elif parameter.requires_grad and "lora_" not in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * size * 0.1)
    return write_run(run, recipe, model)


def untie(tiny: Path, folder: Path) -> Path:
    """A copy of a tiny model whose head is a matrix of its own."""
    from transformers import AutoModelForImageTextToText

    shutil.copytree(tiny, folder)
    model = AutoModelForImageTextToText.from_pretrained(tiny)
    model.config.tie_word_embeddings = model.config.text_config.tie_word_embeddings = False
    noise = torch.randn(model.lm_head.weight.shape, generator=torch.Generator().manual_seed(3))
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() + 0.01 * noise)
    model.save_pretrained(folder)
    return folder
