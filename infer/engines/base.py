"""What an engine is: records in, one raw text per record out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from benchmarks.schema import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One generated text, or why there is none.

    Attributes:
        text: Raw text with every special token but the end and padding ones; `None` on an error.
        finish: `stop`, or `length` where the limit on new tokens ended the text.
        prompt_tokens: Tokens of the prompt, images included; `None` where a server does not say.
        new_tokens: Generated tokens, the end token included; likewise.
        ids: The generated tokens up to the end token; a text, tokenised again, may give others.
        label_scores: Class word -> log probability; see `benchmarks.predictions.Prediction`.
        label_scores_at: Whether the class follows the prompt or generated words; present with `label_scores`.
        error: Why the sample failed on our side.
    """

    text: str | None = None
    finish: Literal["stop", "length"] | None = None
    prompt_tokens: int | None = 0
    new_tokens: int | None = 0
    ids: tuple[int, ...] = ()
    label_scores: dict[str, float] | None = None
    label_scores_at: Literal["prompt", "generated"] | None = None
    error: str | None = None


class Engine(Protocol):
    """Generates answers for a block of records."""

    def generate(self, records: Sequence[Record]) -> list[Generated]:
        """One result per record, in order; a sample that fails gives `error` and harms no other."""
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """An engine that prepares what it will be asked for."""

    def expect(self, blocks: Sequence[Sequence[Record]]) -> None:
        """Says which blocks `Engine.generate` will be given from now on, in this order."""
        ...
