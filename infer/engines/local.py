"""Which way of generating a model that is loaded here takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.schema import Record
from collators.encoder import Encoder
from collators.image_sets import KeptFeatures
from collators.packing import image_set
from collators.sources import ImageSource
from infer.blocks import consecutive, together
from infer.engines.hf import HfEngine
from infer.engines.shared_prefix import SharedPrefixEngine
from models.registry import family_collator
from recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin

# Questions of a call for each that is answered at a time.
REFILLS = 4


def shares_prefixes(recipe: Recipe) -> bool:
    """Whether questions about the same images are answered together.

    PaliGemma's prompts are not the same for two questions anywhere (image and prompt see each other); it shares its
    vision features whatever the recipe says.
    """
    return recipe.decoding.share_images and recipe.model.family == "qwen3_vl" and recipe.model.attention == "sdpa"


def prediction_blocks(
    records: Sequence[Record], recipe: Recipe, encoder: Encoder, *, whole: bool = True
) -> list[list[int]]:
    """Positions of the records of each engine call; see `infer.predict.Job`.

    A kill loses what a call has computed so far. Shared prefixes want longer ones: questions of the next image set take the
    places of those that are through. Without them a block is a batch, and no larger than `decoding.batch_size` allows.

    Args:
        records: In dataset order.
        recipe: The recipe in force.
        encoder: Prompt, image plan and codec.
        whole: See `local_engine`.
    """
    if not (shares_prefixes(recipe) and whole):
        return consecutive(len(records), recipe.decoding.batch_size)
    return together(records, REFILLS * recipe.decoding.batch_size, lambda record: image_set(encoder.shown(record)))


def local_engine(
    recipe: Recipe,
    model: PreTrainedModel,
    encoder: Encoder,
    processor: ProcessorMixin,
    images: ImageSource,
    *,
    kept: KeptFeatures | None = None,
    whole: bool = True,
    lockstep: bool = False,
) -> HfEngine:
    """The engine of a loaded model.

    Args:
        recipe: The recipe in force.
        model: In evaluation mode, on its device.
        encoder: Prompt, image plan and codec.
        processor: The model's processor.
        images: Opens images.
        kept: Where vision features are kept; not in lockstep, in which processes may not have different ones.
        whole: This process holds all weights. Processes that hold them together must make the same passes, which with
            shared prefixes depend on the answers.
        lockstep: See `HfEngine`.
    """
    decoding = recipe.decoding
    shared = shares_prefixes(recipe) and whole
    collator = family_collator(recipe.model.family)(encoder, processor, images, targets=False, share_images=shared)
    collator.kept = None if lockstep else kept
    if shared:
        return SharedPrefixEngine(
            model,
            collator,
            max_new_tokens=decoding.max_new_tokens,
            rows=decoding.batch_size,
            workers=recipe.batch.workers,
        )
    return HfEngine(
        model,
        collator,
        max_new_tokens=decoding.max_new_tokens,
        lockstep=lockstep,
        valid_boxes=decoding.valid_boxes,
    )
