"""What a codec is: a pair of pure functions between an answer and a model's text.

A codec sees the `Ask` (task, images, question, choices), never the target, so decoding cannot leak
it. Boxes go in and come out in native pixels of the right image. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from benchmarks.errors import DataError
from benchmarks.schema import Answer, Ask


@dataclass(frozen=True, slots=True)
class Invalid:
    """A text that does not hold an answer; `reason` is a short stable name for counting."""

    reason: str


# Reads a model's text; never raises.
Decode = Callable[[str, Ask], Answer | Invalid]


class CodecError(DataError):
    """An answer or a task that a codec cannot express."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """How a codec writes the class of a closed question.

    Attributes:
        labels: The words that may stand as the class, the positive one first.
        opening: The answer's text before the class where that is the same for every answer, so that the class
            can be scored directly after the prompt; `None` where a sentence of the model's own comes first.
        closing: Text directly after the class, the same for every class and answer.
        text_follows: Words of the model's own follow `closing`, so that its last characters may share a token
            with them.
    """

    labels: tuple[str, ...]
    opening: str | None
    closing: str
    text_follows: bool = False


class Codec(Protocol):
    """Turns answers into text and back.

    Attributes:
        name: As recipes name it.
        tasks: The tasks that it has a form for; `None` for any.
    """

    name: str
    tasks: tuple[str, ...] | None

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the answer as the text to learn.

        Raises:
            CodecError: The codec has no form for this task or answer.
        """
        ...

    def decode(self, text: str, ask: Ask) -> Answer | Invalid:
        """Reads a model's text; whatever the text is, the result is a value, never an exception."""
        ...

    def closed_form(self, ask: Ask) -> ClosedForm | None:
        """How the class of this question is written; `None` where the form has no class."""
        ...

    def class_offset(self, text: str, ask: Ask) -> int | None:
        """Number of characters before the class in a model's text, which may be cut or invalid.

        `None` where the text has no place for a class, or the question none at all.
        """
        ...
