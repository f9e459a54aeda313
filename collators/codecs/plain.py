"""The plain codec: the text is the answer. Boxes and masks are not written."""

from __future__ import annotations

from benchmarks.schema import Answer, Ask
from collators.codecs.base import ClosedForm, CodecError, Invalid
from collators.codecs.scintiground_parse import is_storable


class Plain:
    """Writes the sentence, or the class where there is no sentence."""

    name = "plain"
    tasks: tuple[str, ...] | None = None

    def encode(self, answer: Answer, ask: Ask) -> str:
        """The sentence, else the label.

        Raises:
            CodecError: The answer has neither.
        """
        text = answer.label if answer.text is None else answer.text
        if text is None:
            raise CodecError(
                "the answer has neither text nor label",
                where=f"codec {self.name}, task {ask.task}",
                fix="choose a codec that writes what the target holds, or leave the task out",
            )
        return text

    def decode(self, text: object, ask: Ask) -> Answer | Invalid:
        """The stripped text; its label is the choice it equals, upper and lower case alike."""
        if not isinstance(text, str):
            return Invalid("not_text")
        stripped = text.strip()
        if not stripped:
            return Invalid("empty")
        if not is_storable(stripped):
            return Invalid("lone_surrogate")
        spelled = {choice.casefold(): choice for choice in ask.choices}
        return Answer(text=stripped, label=spelled.get(stripped.casefold()))

    def closed_form(self, ask: Ask) -> ClosedForm | None:  # noqa: ARG002 - the protocol's arguments
        """None: nothing sets a class apart from the words around it."""
        return None

    def class_offset(self, text: str, ask: Ask) -> int | None:  # noqa: ARG002 - the protocol's arguments
        """None, as there is no class."""
        return None
