"""Provenance of weights: versions, hashes, and the recipe and encoder stored beside them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchmarks.dataset import known_sha256, read_struct, write_atomic
from benchmarks.errors import DataError
from collators.encoder import Encoder, differences
from models.processes import process_state
from recipes.errors import UserError
from recipes.load import dump_recipe
from recipes.schema import Recipe

ENCODER = "encoder.json"
RECIPE = "recipe.yaml"
PROMPT = "prompt.yaml"
PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "datasets",
    "tokenizers",
    "deepspeed",
    "bitsandbytes",
    "openai",
)


def environment() -> dict[str, Any]:
    """Versions, device and git commit of this run; no host names and no paths."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    device = torch.cuda.get_device_name() if process_state().device.type == "cuda" else "cpu"
    return {"python": platform.python_version(), "versions": versions, "device": device, **_commit()}


def _commit() -> dict[str, Any]:
    root = Path(__file__).parent.parent
    try:
        command = ["git", "-C", str(root), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return {}
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid")), None)
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}


def weights_hash(folder: Path) -> str:
    """SHA-256 over the safetensors files of a folder, in name order."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        # A large base is asked for several times in a run.
        digest.update(f"{path.name} {known_sha256(path)}\n".encode())
    return digest.hexdigest()


class StoredEncoder(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of `encoder.json`.

    Attributes:
        fingerprint: The encoder's fingerprint.
        parts: What it covers.
        base_weights_hash: Hash of the base weights the run started from; `None` for weights from the hub.
    """

    fingerprint: str
    parts: dict[str, Any]
    base_weights_hash: str | None = None


def write_encoder(folder: Path, recipe: Recipe, encoder: Encoder) -> None:
    """Writes recipe, prompt file and encoder fingerprint beside the weights, so that the folder explains itself."""
    folder.mkdir(parents=True, exist_ok=True)
    if recipe.prompt.file is not None:
        write_atomic(folder / PROMPT, Path(recipe.prompt.file).read_bytes())
        prompt = recipe.prompt.model_copy(update={"file": PROMPT})
        recipe = recipe.model_copy(update={"prompt": prompt})
    write_atomic(folder / RECIPE, dump_recipe(recipe).encode())
    stored = StoredEncoder(
        fingerprint=encoder.fingerprint,
        parts=encoder.parts,
        base_weights_hash=base_weights_hash(recipe),
    )
    write_atomic(folder / ENCODER, msgspec.json.format(msgspec.json.encode(stored), indent=1))


def base_weights_hash(recipe: Recipe) -> str | None:
    """Hash of the recipe's base weights, if they lie in a folder."""
    folder = Path(recipe.model.checkpoint)
    return weights_hash(folder) if folder.is_dir() else None


def read_encoder(folder: Path) -> StoredEncoder:
    """Reads `encoder.json`.

    Raises:
        DataError: It is missing or broken.
    """
    path = folder / ENCODER
    if not path.is_file():
        raise DataError(
            f"{path} is missing", fix="give the recipe with --recipe, or a folder made by `python -m train`"
        )
    return read_struct(path, StoredEncoder, what="an encoder description", fix="train again")


def check_encoder(folder: Path, encoder: Encoder, *, fix: str) -> None:
    """Refuses an encoder other than the one that the weights in a folder were trained with.

    Raises:
        UserError: Names the parts that differ; `fix` says what to do.
        DataError: The folder does not say.
    """
    stored = read_encoder(folder)
    if stored.fingerprint != encoder.fingerprint:
        raise UserError(
            "the encoder differs from the one these weights were trained with: "
            + "; ".join(differences(encoder.parts, stored.parts)),
            where=str(folder / ENCODER),
            fix=fix,
        )


def check_base(folder: Path, recipe: Recipe) -> None:
    """Refuses a base with other weights than the adapter in a folder was trained on: the shapes may fit all the same.

    Raises:
        UserError: Both hashes are known and differ.
    """
    if not (folder / ENCODER).is_file():
        return
    expected, found = read_encoder(folder).base_weights_hash, base_weights_hash(recipe)
    # A base on the hub has no hash; a folder that is not there is named when it is loaded.
    if expected is not None and found is not None and expected != found:
        raise UserError(
            f"the base weights in {recipe.model.checkpoint} are not those this adapter was trained on",
            where=str(folder / ENCODER),
            fix="give the right folder as model.checkpoint=..., or train the adapter again",
        )
