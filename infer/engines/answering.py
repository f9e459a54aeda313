"""Questions about shared images on their way: waiting to be computed, and being answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from infer.engines.group_cache import Group


@dataclass(slots=True)
class Question:
    """A question being answered.

    Attributes:
        number: Of its record in the block.
        row: Of its question in the group.
        prompt_tokens: Of its prompt alone.
        last: The prompt's last token.
        position: Of the next token, the same on all axes.
        tokens: Generated so far.
        broken: Whether its logits were not finite.
    """

    number: int
    row: int
    prompt_tokens: int
    last: int
    position: int
    tokens: list[int] = field(default_factory=list)
    broken: bool = False


@dataclass(slots=True)
class Answering:
    """A group with its questions, and those that are still being answered."""

    group: Group
    questions: list[Question]
    live: list[Question]


@dataclass(frozen=True, slots=True)
class Unit:
    """Questions about one image set.

    Attributes:
        numbers: Of the records in the block.
        inputs: The collator's batch of them.
    """

    numbers: list[int]
    inputs: dict[str, Any]

    @property
    def tokens(self) -> int:
        """Of the prompts, the prefix counted once."""
        count: int = self.inputs["input_ids"].shape[1]
        return count


class Waiting:
    """Units that are not computed yet, one of them looked at."""

    def __init__(self, units: Iterator[Unit]) -> None:
        self._units = units
        self._next = next(units, None)

    def __bool__(self) -> bool:
        return self._next is not None

    @property
    def next(self) -> Unit:
        """The next unit, which stays."""
        assert self._next is not None
        return self._next

    def take(self) -> Unit:
        """The next unit, which is gone then."""
        unit, self._next = self.next, next(self._units, None)
        return unit
