"""Which tokens of an answer make up the score of each class."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from collators.codecs.base import ClosedForm

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# First characters of a text after the closing; tokenizers join some of them to the characters before.
_FOLLOWING = ("A", "1", *string.punctuation)


@dataclass(frozen=True, slots=True)
class LabelTokens:
    """An answer up to what closes its class, once for each class.

    Attributes:
        context: Token ids between the prompt and the first scored token, the same for every class.
        scored: Class -> token ids whose log probabilities add up to its score. None of them begins with all of
            another, so the classes exclude each other.
        at: Whether the context is constant (`prompt`) or written by the model (`generated`).
    """

    context: list[int]
    scored: dict[str, list[int]]
    at: Literal["prompt", "generated"]


@dataclass(frozen=True, slots=True)
class _Piece:
    """One token and the characters it covers; `end` is the first that it does not."""

    token: int
    start: int
    end: int


def label_tokens(
    tokenizer: PreTrainedTokenizerBase, form: ClosedForm, before: str, written: Sequence[int] = ()
) -> LabelTokens:
    """The tokens to score.

    Text before the class, class and closing are tokenised as one string, as a training target is. Scored are
    the tokens from the first that holds a character of the class, and that all classes reach in the same
    context, to the last whose characters the closing settles.

    Args:
        tokenizer: The model's tokenizer.
        form: How the answer writes its class.
        before: The answer's text before the class.
        written: If a model wrote that text, its token ids (further ones may follow): the context is then what it
            wrote, also where a target would be cut into other tokens.
    """
    answers = {label: _settled(tokenizer, before + label, form) for label in form.labels}
    first = min(_count(pieces, len(before)) for pieces in answers.values())
    head, *others = answers.values()
    for pieces in others:
        first = min(first, _shared(head, pieces))
    context = [piece.token for piece in head[:first]]
    return LabelTokens(
        context=_as_written(tokenizer, before[: head[first].start], written, context),
        scored={label: [piece.token for piece in pieces[first:]] for label, pieces in answers.items()},
        at="generated" if form.opening is None else "prompt",
    )


def _settled(tokenizer: PreTrainedTokenizerBase, text: str, form: ClosedForm) -> list[_Piece]:
    """Tokens of the text and the closing, without those at the end that what follows may change."""
    whole = text + form.closing
    following = _FOLLOWING if form.text_follows else ()
    pieces, *others = _pieces(tokenizer, [whole, *(whole + first for first in following)])
    if not others:
        return pieces
    settled = min(_shared(pieces, other) for other in others)
    # The class itself and a first character after it always count.
    return pieces[: max(settled, _count(pieces, len(text)) + 1)]


def _pieces(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[_Piece]]:
    encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    return [
        [_Piece(token, start, end) for token, (start, end) in zip(ids, spans, strict=True)]
        for ids, spans in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    ]


def _count(pieces: Sequence[_Piece], length: int) -> int:
    """Number of tokens before the first that holds a character after the first `length` ones."""
    return next((number for number, piece in enumerate(pieces) if piece.end > length), len(pieces))


def _shared(left: Sequence[_Piece], right: Sequence[_Piece]) -> int:
    """Number of equal tokens at the start."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((number for number, (one, other) in pairs if one != other), min(len(left), len(right)))


def _as_written(tokenizer: PreTrainedTokenizerBase, text: str, written: Sequence[int], context: list[int]) -> list[int]:
    """The first of the written tokens that spell `text`; `context` if no token of the model ends there."""
    if list(written[: len(context)]) == context:
        return context
    for length in range(len(written) + 1):
        if tokenizer.decode(written[:length], skip_special_tokens=False, clean_up_tokenization_spaces=False) == text:
            return list(written[:length])
    return context
