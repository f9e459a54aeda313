"""Merging a LoRA run into a plain transformers checkpoint that is checked before it counts.

The sum is formed in float32 and rounded once, to the type that is written. A 4-bit base is first
brought back to the numbers that the adapter was trained against: its NF4 weights, dequantised to the
recipe's `model.dtype`, not the full weights of the checkpoint they were made from. The folder is
written under a hidden name, loaded back, compared (`train.merge_check`) and only then renamed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from benchmarks.dataset import load_info, write_atomic
from infer.load import Described, System, describe, load_system
from models.adapters import load_adapter
from models.processes import process_state, quantized_device_map
from models.provenance import ENCODER, RECIPE, base_weights_hash, weights_hash, write_encoder
from models.registry import family_module
from recipes.errors import UserError
from recipes.schema import Recipe
from train.merge_check import Check, MergeError, check_records, compare, logits_along, observe
from train.outputs import MANIFEST, write_manifest

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

ATTENTION = "sdpa"  # the two sides must compute alike, and flash attention has no float32
Dtype = Literal["bfloat16", "float16", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for.

    Attributes:
        run: Run or model folder with an adapter.
        out: Folder to write; must be new or empty.
        dtype: Type of the merged weights; `None` takes the recipe's `model.dtype`.
        data: Dataset to check on; `None` takes the recipe's.
        overrides: `section.key=value` changes, for example of a base that has moved.
    """

    run: str
    out: Path
    dtype: Dtype | None = None
    data: Path | None = None
    overrides: Sequence[str] = ()


def merge(request: Request) -> Check:
    """Writes the merged checkpoint to `request.out`; nothing is there unless every check passed.

    Raises:
        UserError: The run has no adapter, its base or encoder is another, or `out` is in use.
        MergeError: The merged model does not answer as the adapter on its base does, or cannot be written.
        DataError: There are no records to check on.
    """
    if process_state().num_processes > 1:
        raise UserError("merging is the work of one process", fix="start it as `python -m train merge`")
    _check_new(request.out)
    described = describe(request.run, recipe_path=None, overrides=request.overrides)
    if described.adapter is None:
        raise UserError(
            f"{request.run} holds no adapter: its model is whole already",
            fix="use it as it is; `python -m models export` writes it in another number type",
        )
    recipe = described.recipe
    dtype: Dtype = request.dtype or recipe.model.dtype
    data = request.data or Path(recipe.data.dataset)
    records = check_records(recipe, data)

    base = _exact_base(recipe)
    own_generation = base.generation_config
    adapted = load_adapter(base, described.adapter).eval()
    system = System(recipe, described.encoder, described.processor, adapted, request.run, None, None, described.decode)
    before = observe(system, data, records)
    with adapted.disable_adapter():
        untuned = logits_along(system, data, records, before.said)
    merged = _merged(adapted, getattr(torch, dtype), described.adapter)
    merged.generation_config = own_generation  # answering has left greedy settings of ours
    merged.config.use_cache = True
    tied = bool(merged.config.tie_word_embeddings)

    with _part(request.out) as part:
        _write(part, described, merged, dtype)
        del base, adapted, system, merged  # the folder is what counts from here on
        saved = load_system(str(part), recipe_path=None, overrides=(f"model.attention={ATTENTION}",))
        after = observe(replace(saved, model=saved.model.float()), data, records, along=before.said)
        check = compare(data, records, untuned, before, after, dtype)
        facts = _facts(request, described, dtype=dtype, tied=tied)
        facts["check"] = {"dataset_hash": load_info(data).content_hash} | asdict(check)
        with _writable(request.out):
            write_manifest(part / MANIFEST, recipe, described.encoder, facts | {"weights_hash": weights_hash(part)})
            write_atomic(part / "README.md", _card(recipe, facts, check).encode())
    return check


def _check_new(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(
            f"{out} exists already", where="--out", fix="name a new or empty folder: nothing is overwritten"
        )


def _exact_base(recipe: Recipe) -> PreTrainedModel:
    """The base in float32, with the very weights that the adapter was trained on."""
    settings = recipe.model.model_copy(update={"attention": ATTENTION})
    model = family_module(settings.family).load_model(settings, device_map=quantized_device_map(settings))
    if recipe.model.quantization != "none":
        model = model.dequantize()
    return model.float().to(process_state().device)


def _merged(adapted: PeftModel, dtype: torch.dtype, folder: Path) -> PreTrainedModel:
    """Adds the adapter to its base in float32 and rounds the sum."""
    try:
        merged = adapted.merge_and_unload(progressbar=True, safe_merge=True)
    except ValueError as error:
        raise MergeError(str(error), where=str(folder), fix="train the adapter again") from error
    merged = merged.to(dtype)
    for part in merged.config.sub_configs:  # these keep the type they were loaded in
        getattr(merged.config, part).dtype = dtype
    for name, parameter in merged.named_parameters():
        if not torch.isfinite(parameter).all():
            raise MergeError(
                f"weight {name} is not finite in {str(dtype).removeprefix('torch.')}",
                where=str(folder),
                fix="merge with --dtype bfloat16 or float32, whose range is larger; if it is not finite there, train again",
            )
    return merged


@contextmanager
def _part(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` that takes its name at the end, and is removed if anything fails."""
    out = out.resolve()
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with _writable(out):
            part.mkdir(parents=True)
        yield part
        with _writable(out):
            part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _writable(out: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        raise MergeError(
            f"the merged model cannot be written: {error}",
            where=str(out),
            fix="free space or mend permissions, then run the same command; nothing was kept",
        ) from error


def _write(part: Path, described: Described, merged: PreTrainedModel, dtype: Dtype) -> None:
    """Writes weights, processor, and a recipe that loads them as they are."""
    needed = sum(parameter.numel() * parameter.element_size() for parameter in merged.parameters())
    free = shutil.disk_usage(part).free
    if free < needed:
        raise MergeError(
            f"the merged model needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
            where=str(part.parent),
            fix="free space, or name an --out on another disk",
        )
    recipe = described.recipe
    model = recipe.model.model_copy(update={"dtype": dtype, "quantization": "none"})
    with _writable(part):
        merged.save_pretrained(part)
        described.processor.save_pretrained(part)
        write_encoder(part, recipe.model_copy(update={"model": model}), described.encoder)


def _facts(request: Request, described: Described, *, dtype: Dtype, tied: bool) -> dict[str, Any]:
    model = described.recipe.model
    adapter = described.adapter or Path(request.run)
    precision = model.dtype if model.quantization == "none" else f"{model.quantization}, dequantised to {model.dtype}"
    return {
        "merged_from": request.run,
        "adapter_weights_hash": weights_hash(adapter),
        "base_weights_hash": base_weights_hash(described.recipe),
        "precision": {"base": precision, "sum": "float32", "written": dtype, "compared": "float32"},
        "tied_embeddings": tied,
    }


def _card(recipe: Recipe, facts: dict[str, Any], check: Check) -> str:
    precision = facts["precision"]
    return f"""---
library_name: transformers
base_model: {recipe.model.checkpoint}
pipeline_tag: image-text-to-text
---

# {recipe.name}, merged

The LoRA adapter of `{recipe.name}` added to the weights of its base, `{recipe.model.checkpoint}`, with MedVLM Baselines.
Not for clinical use.

| | |
|---|---|
| base, as the adapter was trained on it | {precision["base"]} |
| sum formed in, written in | {precision["sum"]}, {precision["written"]} |
| adapter weights, hash | `{facts["adapter_weights_hash"]}` |
| checked on | {len(check.records)} records: {describe_check(check)} |
| answer form | `{recipe.codec}` |

`{RECIPE}` holds every setting and `{ENCODER}` the fingerprint of prompt, image size and answer form;
`python -m infer` reads both and refuses to run with others. `{MANIFEST}` says what was merged and compared.
"""


def describe_check(check: Check) -> str:
    """One line on what the comparison found."""
    texts = f"all {len(check.records)} texts equal"
    if check.ties:
        texts = f"{len(check.ties)} of {len(check.records)} texts part at a tie"
    return (
        f"{texts}; logits differ by at most {check.difference:.1e} ({check.tolerance:.0e} of {check.largest_logit:.1f} is "
        f"accepted), the adapter moves them by {check.effect:.1e}"
    )
