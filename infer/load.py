"""From a run folder, model folder or checkpoint to a system that answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collators.base import Collator
from collators.codecs.base import Decode
from collators.codecs.seg_tokens import SegTokens
from collators.encoder import Encoder, build_encoder
from collators.sources import ImageSource
from infer.engines.hf import HfEngine
from infer.engines.local import local_engine, shares_prefixes
from infer.masks import decode_with_masks
from models.adapters import ADAPTER, load_adapter, take_off
from models.pixel_cache import open_pixel_cache
from models.processes import process_state, quantized_device_map
from models.provenance import ENCODER, RECIPE, base_weights_hash, check_base, check_encoder, weights_hash
from models.registry import family_collator, family_module
from models.vision_cache import open_vision_cache
from recipes.errors import RecipeError, UserError
from recipes.load import load_recipe
from recipes.schema import Model, Recipe

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import GenerationConfig, PreTrainedModel, ProcessorMixin


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
        decode: Reads the model's texts; with masks, where the recipe names the weights that draw them.
    """

    recipe: Recipe
    encoder: Encoder
    processor: ProcessorMixin
    model: PreTrainedModel
    weights: str
    weights_hash: str | None
    base_weights_hash: str | None
    decode: Decode

    def collator(self, images: ImageSource) -> Collator:
        """The collator that asks questions, over an image source."""
        return family_collator(self.recipe.model.family)(self.encoder, self.processor, images, targets=False)

    def engine(self, images: ImageSource, data: Path | None = None) -> HfEngine:
        """The engine over an image source.

        Args:
            images: Opens images.
            data: Folder of the dataset that they belong to, where the recipe's vision cache is by default; without one
                no features are kept.

        Raises:
            UserError: The vision cache cannot be written.
        """
        kept = None if data is None else open_vision_cache(self.recipe, self.model, self.encoder, data)
        engine = local_engine(self.recipe, self.model, self.encoder, self.processor, images, kept=kept)
        if data is not None and (pixels := open_pixel_cache(self.recipe, self.encoder, data)) is not None:
            engine.collator.keep_pixels(pixels)
        return engine


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


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of weights before any is loaded.

    Attributes:
        weights: The folder or name of the weights, as given.
        folder: The folder that holds them; `None` for a hub name.
        recipe: Recipe in force, overrides applied.
        encoder: Encoder in force.
        processor: Processor from the weights' own folder.
        decode: Reads the model's texts; see `System`.
    """

    weights: str
    folder: Path | None
    recipe: Recipe
    encoder: Encoder
    processor: ProcessorMixin
    decode: Decode

    @property
    def adapter(self) -> Path | None:
        """The folder, if it holds an adapter."""
        return self.folder if self.folder is not None and (self.folder / ADAPTER).is_file() else None

    @property
    def source(self) -> Model:
        """Where whole weights and the processor come from: the folder itself, or the recipe's checkpoint."""
        if self.folder is None:
            return self.recipe.model
        return _from_folder(self.recipe.model, self.folder)


def describe(
    weights: str, *, recipe_path: str | None, overrides: Sequence[str], allow_mismatch: bool = False
) -> Described:
    """Reads recipe, processor and mask decoder and checks encoder and base, without loading weights; see `load_system`."""
    folder = model_folder(weights)
    recipe = _recipe(folder, weights, recipe_path, overrides)
    source = recipe.model if folder is None else _from_folder(recipe.model, folder)
    processor = family_module(recipe.model.family).load_processor(source, recipe.images)
    encoder = build_encoder(recipe, processor)
    described = Described(weights, folder, recipe, encoder, processor, _decoding(recipe, encoder))
    if folder is not None and (folder / ENCODER).is_file() and not allow_mismatch:
        check_encoder(
            folder,
            described.encoder,
            fix="drop the overrides or recipe that change it; `python -m infer` also takes --allow-encoder-mismatch",
        )
    if described.adapter is not None:
        check_base(described.adapter, recipe)
    return described


def _decoding(recipe: Recipe, encoder: Encoder) -> Decode:
    """How texts are read; raises `UserError` if the recipe's mask decoder is none."""
    weights = recipe.decoding.mask_decoder
    if weights is None or not isinstance(encoder.codec, SegTokens):
        return encoder.decode
    return decode_with_masks(encoder.codec, Path(weights))


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
        UserError: No recipe, another encoder, another base, an adapter that does not fit its base.
    """
    described = describe(weights, recipe_path=recipe_path, overrides=overrides, allow_mismatch=allow_mismatch)
    return Loader().load(described)


class Loader:
    """Loads systems one after the other; a base that the next adapter needs too is not loaded again.

    Only the newest system may be used: its base is the one before it, with another adapter on.
    """

    def __init__(self) -> None:
        # Sharing prefixes changes a base's layers, whatever adapter it takes.
        self._base: tuple[Model, bool] | None = None
        self._adapted: PeftModel | None = None
        self._generation: GenerationConfig | None = None

    def load(self, described: Described) -> System:
        """Loads a system; see `load_system`."""
        base_hash = None
        if described.adapter is not None:
            base = self._take_base(described.recipe)
            base_hash = base_weights_hash(described.recipe) or hub_commit(base)
            model = self._adapted = load_adapter(base, described.adapter)
        else:
            self._base = self._adapted = None
            model = _load(described.source)
        model = _placed(model, described.recipe.model)
        if shares_prefixes(described.recipe):
            family_module(described.recipe.model.family).share_images(model)
        own_hash = weights_hash(described.folder) if described.folder else hub_commit(model)
        encoder, processor = described.encoder, described.processor
        return System(
            described.recipe, encoder, processor, model, described.weights, own_hash, base_hash, described.decode
        )

    def _take_base(self, recipe: Recipe) -> PreTrainedModel:
        """The recipe's base without an adapter and with its own generation settings: an engine leaves others."""
        wanted = (recipe.model, shares_prefixes(recipe))
        if self._adapted is not None and self._base == wanted:
            base = take_off(self._adapted)
            base.generation_config = self._generation
            return base
        self._adapted = None  # the memory is needed for the next
        base = _load(recipe.model)
        self._base, self._generation = wanted, base.generation_config
        return base


def _load(model: Model) -> PreTrainedModel:
    return family_module(model.family).load_model(model, device_map=quantized_device_map(model))


def _placed(model: PreTrainedModel, settings: Model) -> PreTrainedModel:
    """The model on this process's device, ready to answer."""
    if quantized_device_map(settings) is None:
        model = model.to(process_state().device)
    return model.eval()


def _from_folder(model: Model, folder: Path) -> Model:
    return model.model_copy(update={"checkpoint": str(folder), "revision": None})


def hub_commit(model: PreTrainedModel) -> str | None:
    """`hub:` and the commit that a model from the hub was loaded at; `None` where transformers does not know it."""
    commit = getattr(model.config, "_commit_hash", None)
    return None if commit is None else f"hub:{commit}"


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
