"""From a run folder, model folder or checkpoint to a system that answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collators.encoder import Encoder, build_encoder, differences
from collators.qwen3_vl import Qwen3VLCollator
from collators.sources import ImageSource
from infer.engines.hf import HfEngine
from models.adapters import quiet_peft
from models.processes import process_state, quantized_device_map
from models.provenance import ENCODER, RECIPE, base_weights_hash, read_encoder, weights_hash
from models.registry import family_module
from recipes.errors import RecipeError, UserError
from recipes.load import load_recipe
from recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin

ADAPTER = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class System:
    """A loaded model with its encoder.

    Attributes:
        recipe: Recipe in force, overrides applied.
        encoder: Encoder in force.
        processor: Processor from the weights' own folder.
        model: In evaluation mode, on its device.
        weights: The folder or name the weights came from, as given.
        weights_hash: SHA-256 over the safetensors files; `hub:` and the commit for weights from the hub, if known.
        base_weights_hash: The same of the base model under an adapter; `None` without an adapter.
    """

    recipe: Recipe
    encoder: Encoder
    processor: ProcessorMixin
    model: PreTrainedModel
    weights: str
    weights_hash: str | None
    base_weights_hash: str | None

    def engine(self, images: ImageSource) -> HfEngine:
        """The engine over an image source."""
        collator = Qwen3VLCollator(self.encoder, self.processor, images, targets=False)
        return HfEngine(self.model, collator, max_new_tokens=self.recipe.decoding.max_new_tokens)


def model_folder(weights: str) -> Path | None:
    """The folder that holds the weights: the argument itself, or the `model` folder of a run; `None` for a hub name.

    Raises:
        UserError: The folder exists but holds no weights.
    """
    path = Path(weights)
    if not path.is_dir():
        if path.exists() or weights.startswith((".", "/")) or weights.count("/") > 1:
            raise UserError(
                f"{weights} is not a folder with weights", fix="give a run folder, a model folder or a hub name"
            )
        return None
    for candidate in (path, path / "model"):
        if (candidate / ADAPTER).is_file() or (candidate / "config.json").is_file():
            return candidate
    raise UserError(
        f"{weights} holds neither {ADAPTER} nor config.json",
        fix="finish the training run first: the same `python -m train` command continues it",
    )


def load_system(
    weights: str, *, recipe_path: str | None, overrides: Sequence[str], allow_mismatch: bool = False
) -> System:
    """Loads weights with the encoder they were trained with.

    Args:
        weights: Run folder, model folder, or hub name.
        recipe_path: Recipe to use instead of the one beside the weights; needed for bare weights.
        overrides: `section.key=value` changes to it.
        allow_mismatch: Accept an encoder other than the stored one.

    Raises:
        UserError: No recipe, another encoder, an adapter that does not fit its base.
    """
    folder = model_folder(weights)
    recipe = _recipe(folder, weights, recipe_path, overrides)
    family = family_module(recipe.model.family)
    source = (
        recipe.model
        if folder is None
        else recipe.model.model_copy(update={"checkpoint": str(folder), "revision": None})
    )
    processor = family.load_processor(source, recipe.images)
    encoder = build_encoder(recipe, processor)
    if folder is not None and (folder / ENCODER).is_file():
        stored = read_encoder(folder)
        if stored.fingerprint != encoder.fingerprint and not allow_mismatch:
            raise UserError(
                "the encoder differs from the one these weights were trained with: "
                + "; ".join(differences(encoder.parts, stored.parts)),
                where=str(folder / ENCODER),
                fix="drop the overrides or recipe that change it, or pass --allow-encoder-mismatch",
            )
    device_map = quantized_device_map(recipe.model)
    base_hash = None
    if folder is not None and (folder / ADAPTER).is_file():
        _check_base(folder, recipe)
        base = family.load_model(recipe.model, device_map=device_map)
        model = load_adapter(base, folder)
        base_hash = base_weights_hash(recipe) or hub_commit(base)
    else:
        model = family.load_model(source, device_map=device_map)
    if device_map is None:
        model = model.to(process_state().device)
    model.eval()
    own_hash = weights_hash(folder) if folder else hub_commit(model)
    return System(recipe, encoder, processor, model, weights, own_hash, base_hash)


def hub_commit(model: PreTrainedModel) -> str | None:
    """`hub:` and the commit that a model from the hub was loaded at; `None` where transformers does not know it."""
    commit = getattr(model.config, "_commit_hash", None)
    return None if commit is None else f"hub:{commit}"


def _check_base(folder: Path, recipe: Recipe) -> None:
    """Refuses a base with other weights than the adapter was trained on: the shapes may fit all the same."""
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


def load_adapter(base: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Puts a PEFT adapter on its base and checks that every weight of it found its place.

    Raises:
        UserError: Missing or unexpected adapter weights.
    """
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    with quiet_peft():
        model = PeftModel.from_pretrained(base, str(folder))
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as file:
        stored = set(file.keys())
    expected = set(get_peft_model_state_dict(model))
    if stored != expected:
        missing, surplus = sorted(expected - stored), sorted(stored - expected)
        raise UserError(
            f"the adapter does not fit its base model: {len(missing)} weights missing ({', '.join(missing[:2])}), "
            f"{len(surplus)} without a place ({', '.join(surplus[:2])})",
            where=str(folder),
            fix="use the base model named in adapter_config.json and the library versions of the manifest",
        )
    return model


def _recipe(folder: Path | None, weights: str, recipe_path: str | None, overrides: Sequence[str]) -> Recipe:
    if recipe_path is not None:
        return load_recipe(recipe_path, overrides)
    if folder is None:
        raise RecipeError(
            f"there is no folder {weights}; if it is a name on the hub, the recipe must be given too",
            fix="check the path, or give a recipe with --recipe",
        )
    if not (folder / RECIPE).is_file():
        raise RecipeError(
            f"no recipe beside {weights}: prompt, image size and answer form are unknown",
            fix="give one with --recipe",
        )
    return load_recipe(folder / RECIPE, overrides)
