"""PaliGemma's widths and counts, as the cost formulas need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.costs import trained_groups
from models.language_costs import Language
from models.paligemma import attention_of
from recipes.schema import Model, Recipe

if TYPE_CHECKING:
    from transformers import PaliGemmaConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Widths in channels, and counts.

    Attributes:
        language: The language model.
        capped_scores: Whether attention's scores are capped.
        capped_logits: Whether logits are capped.
        masks: Masks of different windows that the blocks are given.
        width: Width of the vision tower.
        inner: Width of its blocks' two-layer unit.
        heads: Number of its heads.
        depth: Number of its blocks.
        patch_pixels: Numbers in a patch.
    """

    language: Language
    capped_scores: bool
    capped_logits: bool
    masks: int
    width: int
    inner: int
    heads: int
    depth: int
    patch_pixels: int

    @classmethod
    def of(cls, config: PaliGemmaConfig) -> Shape:
        """The shape in a checkpoint's config."""
        text, vision = config.text_config, config.vision_config
        # Gemma 2 norms what attention and the gated unit hand back, too.
        norms = 4 if text.model_type == "gemma2" else 2
        return cls(
            language=Language.of(text, norms=norms, head_norms=False, float_norms=True),
            capped_scores=getattr(text, "attn_logit_softcapping", None) is not None,
            capped_logits=getattr(text, "final_logit_softcapping", None) is not None,
            masks=1 if getattr(text, "sliding_window", None) is None else 2,
            width=vision.hidden_size,
            inner=vision.intermediate_size,
            heads=vision.num_attention_heads,
            depth=vision.num_hidden_layers,
            patch_pixels=vision.num_channels * vision.patch_size**2,
        )

    @property
    def vision_block_weights(self) -> int:
        """Matrix elements of one vision block."""
        return self.width * (4 * self.width + 2 * self.inner)

    @property
    def vision_adapted(self) -> list[int]:
        """Input width of each of a vision block's layers that may get an adapter; output widths are the same."""
        return 3 * [self.width]


def language_attention(model: Model, config: PaliGemmaConfig) -> str:
    """Attention implementation of the language model."""
    attention = attention_of(model, config)
    return attention if isinstance(attention, str) else attention["text_config"]


def tower_is_passed(recipe: Recipe) -> bool:
    """Whether the backward pass goes through the vision tower: a frozen one is spared (`models.layout`)."""
    return "vision" in trained_groups(recipe) or recipe.adapter.vision
