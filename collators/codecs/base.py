"""What a codec is: a pair of pure functions between an answer and a model's text.

A codec sees the `Ask` (task, images, question, choices), never the target, so decoding cannot leak
it. Boxes go in and come out in native pixels of the right image. No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.errors import DataError
from benchmarks.schema import Answer, Ask


@dataclass(frozen=True, slots=True)
class Invalid:
    """A text that does not hold an answer; `reason` is a short stable name for counting."""

    reason: str


class CodecError(DataError):
    """An answer or a task that a codec cannot express."""


class Codec(Protocol):
    """Turns answers into text and back."""

    name: str

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the answer as the text to learn.

        Raises:
            CodecError: The codec has no form for this task or answer.
        """
        ...

    def decode(self, text: str, ask: Ask) -> Answer | Invalid:
        """Reads a model's text; whatever the text is, the result is a value, never an exception."""
        ...
