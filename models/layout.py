"""Where a family keeps what: freeze groups and LoRA targets by parameter name, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from models.adapters import adapter_folder, quiet_peft, start_from
from recipes.errors import RecipeError
from recipes.schema import Adapter, FreezeGroup, Role

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Names inside a family's plain (unwrapped) model.

    Attributes:
        groups: Freeze group -> prefixes of its parameters' names; the head has only its own matrix, if there is one.
        roles: Role of a layer -> names of the linear layers that have it.
        language: Prefix of the language model.
        vision: Prefix of the vision tower.
        embeddings: Name of the embedding module.
    """

    groups: Mapping[FreezeGroup, tuple[str, ...]]
    roles: Mapping[Role, tuple[str, ...]]
    language: str
    vision: str
    embeddings: str

    def lora_targets(self, model: nn.Module, adapter: Adapter) -> list[str]:
        """Full names of the linear layers with one of the adapter's roles.

        Names are resolved inside the language model: a vision tower may name its projections alike, and gets an
        adapter only if the recipe says so.

        Raises:
            RecipeError: No layer matches.
        """
        names = [suffix for role in adapter.roles for suffix in self.roles[role]]
        layers = [name for name, _ in model.named_modules() if name.rsplit(".", maxsplit=1)[-1] in names]
        targets: list[str] = []
        for prefix in (self.language, *([self.vision] if adapter.vision else [])):
            found = [name for name in layers if name.startswith(prefix)]
            if not found:
                raise RecipeError(
                    f"no layer below {prefix} is named {', '.join(names)}",
                    where="adapter.roles",
                    fix="check model.family",
                )
            targets += found
        return targets

    def adapt(self, model: PreTrainedModel, adapter: Adapter, *, seed: int) -> PreTrainedModel:
        """Wraps the model for LoRA; full fine-tuning returns it unchanged.

        Args:
            model: Loaded base model.
            adapter: The recipe's adapter section.
            seed: Seed of the adapter's random half.

        Raises:
            RecipeError: No layer matches, a tied head is to be trained alone, or `adapter.init` has another form.
        """
        if adapter.kind == "full":
            return model
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

        if getattr(model, "is_loaded_in_4bit", False):
            model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        modules = self._modules(model, adapter)
        config = LoraConfig(
            r=adapter.rank,
            lora_alpha=adapter.alpha,
            lora_dropout=adapter.dropout,
            bias="none",
            target_modules=self.lora_targets(model, adapter),
            modules_to_save=modules or None,
            # Without it peft would train two copies of a shared matrix, which become one again on loading.
            ensure_weight_tying=_tied(model) and self.embeddings in modules,
            task_type="CAUSAL_LM",
        )
        torch.manual_seed(seed)
        with quiet_peft():
            adapted = get_peft_model(model, config)
        if adapter.init is not None:
            start_from(adapted, adapter_folder(adapter.init))
        return adapted

    def _modules(self, model: PreTrainedModel, adapter: Adapter) -> list[str]:
        """Names of the modules to train in full; a head that shares the embeddings' matrix comes with them."""
        groups = set(adapter.train_also)
        if "head" in groups and _tied(model):
            if "embeddings" not in groups:
                raise RecipeError(
                    "the head is tied to the embeddings in this checkpoint: it cannot be trained alone",
                    where="adapter.train_also",
                    fix="name `embeddings` (both are trained as the one matrix that they are), or drop `head`",
                )
            groups.remove("head")
        names: list[str] = []
        for name in (prefix.removesuffix(".") for group in sorted(groups) for prefix in self.groups[group]):
            module = model.get_submodule(name)
            # peft can copy a module, but not a list of modules.
            listed = isinstance(module, nn.ModuleList)
            names += [f"{name}.{number}" for number in range(len(module))] if listed else [name]
        return names

    def freeze(self, model: nn.Module, groups: tuple[FreezeGroup, ...]) -> None:
        """Stops training of the named groups and checks that it took effect.

        Raises:
            RecipeError: A group has no parameter in this model, or nothing is left to train.
        """
        for group in groups:
            names = [name for name, _ in model.named_parameters() if name.startswith(self.groups[group])]
            if not names:
                tied = "the head is tied to the embeddings: freeze `embeddings`"
                hint = tied if group == "head" else "check model.family"
                raise RecipeError(f"freeze group {group!r} has no parameter in this model", where="freeze", fix=hint)
            for name in names:
                model.get_parameter(name).requires_grad = False
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise RecipeError("every parameter is frozen: nothing to train", where="freeze", fix="freeze fewer groups")

    def spare_tower(self, model: nn.Module) -> None:
        """Keeps the backward pass out of a vision tower of which nothing is trained.

        With activation checkpointing on, transformers (5.24) asks for gradients of what enters each part of a model:
        a frozen tower would be recomputed and passed backward for nothing. The language model goes on getting them.

        Args:
            model: The model, adapted or not; without activation checkpointing nothing happens.
        """
        if any(p.requires_grad for name, p in model.named_parameters() if self.vision in name):
            return
        parts = dict(model.named_modules())
        asked = [part for part in parts.values() if getattr(part, "_require_grads_hooks", None)]
        for part in asked:
            part.disable_input_require_grads()
        if asked:
            next(
                part for name, part in parts.items() if f"{name}.".endswith(self.language)
            ).enable_input_require_grads()

    def group_of(self, name: str) -> str:
        """The freeze group of a parameter, seen through PEFT's name prefix; `lora` for adapter weights."""
        name = name.removeprefix("base_model.model.")
        if ".lora_" in name:
            return "lora"
        return next((group for group, prefixes in self.groups.items() if name.startswith(prefixes)), "other")

    def trainable_by_group(self, model: nn.Module) -> dict[str, tuple[int, int]]:
        """Group -> (trainable, all) parameter counts.

        4-bit weights count as what they stand for; a module that is trained beside the adapter counts once.
        """
        counts: dict[str, tuple[int, int]] = {}
        for name, parameter in model.named_parameters():
            if ".original_module." in name:
                continue
            size = parameter.numel()
            shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
            if shape is not None:
                size = int(torch.Size(shape).numel())
            trainable, total = counts.get(self.group_of(name), (0, 0))
            counts[self.group_of(name)] = (trainable + (size if parameter.requires_grad else 0), total + size)
        return counts


def _tied(model: PreTrainedModel) -> bool:
    """Whether head and embeddings are one matrix."""
    return model.get_input_embeddings().weight is model.get_output_embeddings().weight
