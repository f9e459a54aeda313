"""PaliGemma 1 and 2: load, quantise, adapt by role, freeze by group.

Number types. The checkpoints were trained in bfloat16 and float32. In float16 activations of Gemma-type models may
pass 65,504 and become infinite (both generations): training stops at the first loss that is no number, and prediction
writes an error instead of a text for rows whose logits are not finite. Weights have the recipe's type, but for what PEFT
does to a 4-bit base before training: what stays out of the 4 bits is float32 then, also when validation generates.
Prediction loads it in the recipe's type, so that float16 may overflow there only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from torch import Tensor

from collators.base import Collator, PromptInputs
from collators.image_sets import KeptFeatures
from models import paligemma_features
from models.layout import Layout
from models.loading import read_config, read_processor, read_weights
from models.paligemma_canvases import share_canvases
from models.paligemma_tokens import check_vocabulary
from models.vision_sets import KeptInputs, train_on_sets
from recipes.errors import RecipeError
from recipes.inputs import Images
from recipes.schema import Model

if TYPE_CHECKING:
    from transformers import PaliGemmaConfig, PaliGemmaProcessor, PreTrainedModel

    from collators.paligemma import PaliGemmaCollator

LAYOUT = Layout(
    groups={
        "vision": ("model.vision_tower.",),
        "projector": ("model.multi_modal_projector.",),
        "embeddings": ("model.language_model.embed_tokens.",),
        "language": ("model.language_model.layers.", "model.language_model.norm."),
        "head": ("lm_head.",),
    },
    roles={
        "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
        "mlp": ("gate_proj", "up_proj", "down_proj"),
    },
    language="model.language_model.",
    vision="model.vision_tower.",
    embeddings="model.language_model.embed_tokens",
)
adapt = LAYOUT.adapt
freeze = LAYOUT.freeze
group_of = LAYOUT.group_of
lora_targets = LAYOUT.lora_targets
share_images = share_canvases
spare_tower = LAYOUT.spare_tower
trainable_by_group = LAYOUT.trainable_by_group


def load_processor(model: Model, images: Images) -> PaliGemmaProcessor:  # noqa: ARG001 - the families' signature
    """The checkpoint's processor; its pictures have one size, which the recipe's canvas must have.

    Raises:
        RecipeError: No such checkpoint, not a PaliGemma processor, or its tokens have other ids than the model's.
    """
    processor = read_processor(model)
    if type(processor).__name__ != "PaliGemmaProcessor":
        raise RecipeError(
            f"checkpoint {model.checkpoint} has a {type(processor).__name__}",
            where="model.checkpoint",
            fix="give a folder with PaliGemma's own processor files",
        )
    check_vocabulary(processor.tokenizer, model.checkpoint)
    return processor


def load_config(model: Model) -> PaliGemmaConfig:
    """The checkpoint's config; see `models.loading.read_config`."""
    return read_config(model)


def attention_of(model: Model, config: PaliGemmaConfig) -> str | dict[str, str]:
    """Attention implementation by part: Gemma 2 caps its attention logits, which only `eager` does."""
    if getattr(config.text_config, "attn_logit_softcapping", None) is None:
        return model.attention
    return {"": "eager", "text_config": "eager", "vision_config": model.attention}


def load_model(model: Model, *, device_map: dict[str, int] | None = None) -> PreTrainedModel:
    """Loads the base weights in the recipe's type, in 4 bits if it says so; safetensors only.

    Raises:
        RecipeError: No such checkpoint, not in safetensors, of another family, or a package is missing for its
            quantization or attention.
    """
    config = load_config(model)
    # The vision tower is small and its error in 4 bits would reach every box.
    whole = ("model.vision_tower", "model.multi_modal_projector", "lm_head")
    return read_weights(model, attention=attention_of(model, config), whole=whole, device_map=device_map)


def keep_features(model: PreTrainedModel, kept: KeptFeatures, *, lockstep: bool) -> None:
    """Lets a model train on batches of image sets; see `models.vision_sets.SetEncoder`."""
    train_on_sets(model, paligemma_features, kept, lockstep=lockstep)


def prompt_inputs(model: PreTrainedModel, collator: Collator) -> PromptInputs:
    """What builds the inputs to generate from: the vision features of a canvas are computed once."""
    if collator.kept is not None:
        return KeptInputs(model, paligemma_features, collator.kept, collator)
    return paligemma_features.CanvasFeatures(model, cast("PaliGemmaCollator", collator))


def last_positions(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:  # noqa: ARG001 - as other families
    """Positions of the last token of left-padded prompts: int64[B, 1], counted from 1 as PaliGemma does."""
    return inputs["attention_mask"].sum(dim=1, keepdim=True)
