"""LoRA adapters on their base: put on, taken off, started from; every weight must find its place."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from recipes.compare import changes
from recipes.errors import RecipeError, UserError

if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel

ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_NAME = "default"


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Hides one deprecation: peft 0.21 asks models for `is_gradient_checkpointing`, the name before transformers 5.24.

    Remove it when peft says `is_activation_checkpointing`.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield


def load_adapter(base: PreTrainedModel, folder: Path) -> PeftModel:
    """Puts a PEFT adapter on its base.

    Args:
        base: The base model; its layers are wrapped in place.
        folder: Folder with `adapter_config.json` and `adapter_model.safetensors`.

    Raises:
        UserError: The folder cannot be read, or a weight is missing, without a place or of another shape.
    """
    from peft import get_peft_model

    config = _read_config(folder)
    config.inference_mode = True
    config.base_model_name_or_path = None  # a base that has moved is no reason to warn: its hash is checked
    with quiet_peft():
        try:
            model = get_peft_model(base, config)
        except ValueError as error:
            raise UserError(
                f"the adapter does not fit its base model: {str(error).split('. ')[0]}",
                where=str(folder),
                fix="use the base model named in adapter_config.json",
            ) from error
    _fill(model, folder)
    return model


def take_off(model: PeftModel) -> PreTrainedModel:
    """The base as it was before `load_adapter`.

    PEFT's `unload` alone would leave the modules that were trained in full beside the adapter in the base.
    A second adapter beside the first is no way either: peft 0.21 does not tie the modules of a second one.
    """
    model.delete_adapter(_NAME)
    return model.unload()


def start_from(model: PeftModel, folder: Path) -> None:
    """Gives a new adapter the weights of another of the same form.

    Raises:
        RecipeError: Another rank, alpha, set of layers or of modules trained in full; all differences are named.
        UserError: As in `load_adapter`.
    """
    from peft import get_peft_model_state_dict

    theirs = _form(_read_config(folder), _read_weights(folder))
    mine = _form(model.peft_config[_NAME], get_peft_model_state_dict(model))
    changed = changes(theirs, mine)
    if changed:
        raise RecipeError(
            f"the adapter in {folder} has another form than the recipe's: {'; '.join(changed)}",
            where="adapter.init",
            fix="set adapter.rank, alpha, roles and train_also as in its recipe, or adapter.init: null",
        )
    _fill(model, folder)


def adapter_folder(path: str) -> Path:
    """The folder that holds an adapter: the argument itself, or the `model` folder of a run.

    Raises:
        RecipeError: No adapter in either.
    """
    for candidate in (Path(path), Path(path) / "model"):
        if (candidate / ADAPTER).is_file():
            return candidate
    raise RecipeError(
        f"{path} holds no {ADAPTER}",
        where="adapter.init",
        fix="name the folder of a finished LoRA run, or its `model` folder",
    )


def _form(config: PeftConfig, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """What two adapters must share for the weights of one to mean the same in the other."""
    lora = {name: weight for name, weight in weights.items() if ".lora_" in name}
    ranks = sorted({weight.shape[0] for name, weight in lora.items() if ".lora_A." in name})
    return {
        "adapter.rank": ranks[0] if len(ranks) == 1 else ranks,
        "adapter.alpha": float(config.lora_alpha),
        "alpha_pattern": config.alpha_pattern,
        "use_rslora": config.use_rslora,
        "adapter.roles": sorted({name.split(".lora_")[0].rsplit(".", maxsplit=1)[-1] for name in lora}),
        "adapter.train_also": sorted(
            {name.removeprefix("base_model.model.").rsplit(".", maxsplit=1)[0] for name in weights.keys() - lora.keys()}
        ),
    }


def _read_config(folder: Path) -> PeftConfig:
    from peft import LoraConfig, PeftConfig

    try:
        config = PeftConfig.from_pretrained(str(folder))
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"not an adapter's configuration: {error}",
            where=str(folder / ADAPTER),
            fix="train again, or restore the file",
        ) from error
    if not isinstance(config, LoraConfig):
        raise UserError(
            f"an adapter of type {config.peft_type}; only LoRA is supported",
            where=str(folder / ADAPTER),
            fix="give a LoRA adapter",
        )
    return config


def _read_weights(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / ADAPTER_WEIGHTS
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"the adapter's weights cannot be read: {error}",
            where=str(path),
            fix="train again, or restore the file; weights in other formats are not loaded",
        ) from error


def _fill(model: PeftModel, folder: Path) -> None:
    """Copies an adapter's weights into their places."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    stored, places = _read_weights(folder), get_peft_model_state_dict(model)
    missing, surplus = sorted(places.keys() - stored.keys()), sorted(stored.keys() - places.keys())
    reshaped = [
        f"{name}: {list(stored[name].shape)} for {list(places[name].shape)}"
        for name in sorted(places.keys() & stored.keys())
        if stored[name].shape != places[name].shape
    ]
    if missing or surplus or reshaped:
        kinds = ((missing, "missing"), (surplus, "without a place"), (reshaped, "of another shape"))
        raise UserError(
            "the adapter does not fit its base model: "
            + ", ".join(f"{len(names)} weights {kind} ({', '.join(names[:2])})" for names, kind in kinds if names),
            where=str(folder),
            fix="use the base model named in adapter_config.json and the library versions of the manifest",
        )
    set_peft_model_state_dict(model, stored)
