"""What a run leaves behind beside the weights: a manifest and a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchmarks.dataset import write_atomic
from collators.encoder import Encoder
from models.provenance import ENCODER, RECIPE, environment
from recipes.load import recipe_hash
from recipes.schema import Recipe

MODEL = "model"
MANIFEST = "manifest.json"


def write_manifest(path: Path, recipe: Recipe, encoder: Encoder, facts: dict[str, Any]) -> None:
    """Writes the training manifest: recipe, hashes, counts, losses, environment."""
    manifest = {
        "recipe": recipe.model_dump(mode="json"),
        "recipe_hash": recipe_hash(recipe),
        "encoder_fingerprint": encoder.fingerprint,
        "environment": environment(),
        **facts,
    }
    write_atomic(path, msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def write_card(folder: Path, recipe: Recipe, facts: dict[str, Any]) -> None:
    """Writes the model card; PEFT's own, if any, is replaced."""
    what = "LoRA adapter" if recipe.adapter.kind == "lora" else "fully fine-tuned model"
    library = "peft" if recipe.adapter.kind == "lora" else "transformers"
    trainable, total = facts["trainable_parameters"], facts["parameters"]
    card = f"""---
library_name: {library}
base_model: {recipe.model.checkpoint}
pipeline_tag: image-text-to-text
---

# {recipe.name}

A {what} of `{recipe.model.checkpoint}`, trained with MedVLM Baselines. Not for clinical use.

| | |
|---|---|
| training data | `{facts["dataset"]}`, split `{recipe.data.train}`, content hash `{facts["dataset_hash"]}` |
| samples, steps | {facts["samples"]:,}, {facts["steps"]:,} |
| trainable parameters | {trainable:,} of {total:,} |
| last training loss | {_number(facts["loss"])} |
| best validation loss | {_number(facts["best_validation_loss"])} |
| answer form | `{recipe.codec}` |

`{RECIPE}` holds every setting and `{ENCODER}` the fingerprint of prompt, image size and answer form;
`python -m infer` reads both and refuses to run with others.
"""
    write_atomic(folder / "README.md", card.encode())


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"
