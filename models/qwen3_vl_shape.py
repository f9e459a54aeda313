"""Qwen3-VL's widths and counts, as the cost formulas need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.language_costs import Language

if TYPE_CHECKING:
    from transformers import Qwen3VLConfig


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths in channels, and counts.

    Attributes:
        text: Config of the language model.
        vision: Config of the vision tower.
    """

    text: Any
    vision: Any

    @classmethod
    def of(cls, config: Qwen3VLConfig) -> Shape:
        """The shape in a checkpoint's config."""
        return cls(config.text_config, config.vision_config)

    @property
    def language(self) -> Language:
        """The language model."""
        return Language.of(self.text, norms=2, head_norms=True, float_norms=False)

    @property
    def patches_per_token(self) -> int:
        """Patches that the mergers join into a token."""
        return int(self.vision.spatial_merge_size**2)

    @property
    def mergers(self) -> int:
        """Number of mergers: the last one and those of DeepStack."""
        return 1 + len(self.vision.deepstack_visual_indexes)

    @property
    def patch_pixels(self) -> int:
        """Numbers in a patch."""
        return int(self.vision.in_channels * self.vision.temporal_patch_size * self.vision.patch_size**2)

    @property
    def vision_block_weights(self) -> int:
        """Matrix elements of one vision block."""
        width = int(self.vision.hidden_size)
        return width * (4 * width + 2 * int(self.vision.intermediate_size))

    @property
    def merger_weights(self) -> int:
        """Matrix elements of one merger, which takes a token of merged patches to the language model's width."""
        width = int(self.vision.hidden_size) * self.patches_per_token
        return width * (width + int(self.vision.out_hidden_size))
