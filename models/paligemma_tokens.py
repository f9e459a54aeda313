"""PaliGemma's vocabulary: where its location, mask and image tokens must lie.

The model was trained with 1,024 location tokens, 128 mask tokens and the image token behind Gemma's 256,000. Its
stock processor adds whatever of them a tokenizer lacks, the image token first: given a bare Gemma tokenizer, every
location number is one off, and nothing warns. So the ids are checked, wherever a processor comes from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recipes.errors import RecipeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LOCATIONS = tuple(f"<loc{number:04d}>" for number in range(1024))
MASKS = tuple(f"<seg{number:03d}>" for number in range(128))
IMAGE = "<image>"
GEMMA = 256_000
# Ids of the released checkpoints (224, 448 and 896 pixels, both generations).
PINNED = {
    "<loc0000>": 256_000,
    "<loc1023>": 257_023,
    "<seg000>": 257_024,
    "<seg127>": 257_151,
    IMAGE: 257_152,
}


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, where: str) -> None:
    """Checks the tokens that PaliGemma has beside its language model's.

    A smaller vocabulary than Gemma's (a tiny twin's) must have them in the same order, at its end.

    Raises:
        RecipeError: One is missing or has another id.
    """
    ids = tokenizer.get_vocab()
    first = ids.get("<loc0000>", GEMMA)
    shift = 0 if len(ids) > GEMMA else first - GEMMA
    expected = {token: number + shift for token, number in PINNED.items()}
    wrong = [
        f"{token} is {ids.get(token, 'missing')}, not {number}"
        for token, number in expected.items()
        if ids.get(token) != number
    ]
    if wrong:
        raise RecipeError(
            f"this is no PaliGemma tokenizer: {'; '.join(wrong)}",
            where=where,
            fix="take the checkpoint's own processor files; a bare Gemma tokenizer shifts every location number",
        )
