"""Engine `openai`: one call per record to a server with OpenAI's chat interface (GPT-4o, Gemini, vLLM, SGLang, ...)."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

from PIL import Image as PILImage

from benchmarks.chat import Chat, Failed
from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.encoder import Encoder
from collators.prompts import Message
from collators.sources import ImageSource
from infer.engines.base import Generated


class OpenAiEngine:
    """Asks a model; may be called from several threads.

    A refusal and an empty reply are the model's answers, to be scored as such; only a call without a reply is an error.
    Whether control tokens of the model's tokenizer are left in the text is the server's choice.

    Args:
        chat: Whom to ask.
        encoder: Encoder without a processor.
        images: Where images come from.
        max_pixels: Larger images are reduced to at most so many pixels; others are sent as they are.
        max_new_tokens: Limit on an answer.
    """

    def __init__(
        self, chat: Chat, encoder: Encoder, images: ImageSource, *, max_pixels: int, max_new_tokens: int
    ) -> None:
        self.chat = chat
        self.encoder = encoder
        self.images = images
        self.max_pixels = max_pixels
        self.max_new_tokens = max_new_tokens

    def generate(self, records: Sequence[Record]) -> list[Generated]:
        """See `infer.engines.base.Engine.generate`.

        Raises:
            UserError: No call can succeed; see `benchmarks.chat`.
        """
        return [self._answer(record) for record in records]

    def _answer(self, record: Record) -> Generated:
        try:
            messages = self._messages(self.encoder.shown(record))
        except DataError as error:
            return Generated(error=str(error))
        reply = self.chat.ask(
            {
                "model": self.chat.endpoint.model,
                "messages": messages,
                "temperature": 0,
                "max_tokens": self.max_new_tokens,
            }
        )
        if isinstance(reply, Failed):
            return Generated(error=reply.reason)
        return Generated(
            text=reply.text,
            finish="length" if reply.cut else "stop",
            prompt_tokens=reply.prompt_tokens,
            new_tokens=reply.completion_tokens,
        )

    def _messages(self, record: Record) -> list[Message]:
        """The encoder's messages with the pictures in their places.

        Raises:
            DataError: An image cannot be read.
        """
        pictures = (self.images(image, record.place) for image in record.images)
        return [
            {"role": message["role"], "content": self._content(message["content"], pictures)}
            for message in self.encoder.messages(record.ask())
        ]

    def _content(self, parts: list[Message], pictures: Iterator[PILImage.Image]) -> str | list[dict[str, Any]]:
        if [part["type"] for part in parts] == ["text"]:
            # A turn of one text as every server reads it.
            text: str = parts[0]["text"]
            return text
        return [part if part["type"] == "text" else image_part(next(pictures), self.max_pixels) for part in parts]


def image_part(picture: PILImage.Image, max_pixels: int) -> dict[str, Any]:
    """A picture as a part of a message: PNG in a data URL, reduced where it has more than `max_pixels` pixels."""
    buffer = io.BytesIO()
    reduced(picture, max_pixels).save(buffer, format="PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url, "detail": "high"}}


def reduced(picture: PILImage.Image, max_pixels: int) -> PILImage.Image:
    """The picture, its sides reduced by one factor (rounded down, at least 1 pixel) where it has too many pixels."""
    width, height = picture.size
    if width * height <= max_pixels:
        return picture
    factor = math.sqrt(max_pixels / (width * height))
    # A side of 1 pixel cannot shrink: then the other one has all the pixels.
    width, height = max(1, int(width * factor)), max(1, int(height * factor))
    return picture.resize((min(width, max_pixels), min(height, max_pixels)), PILImage.Resampling.BICUBIC)
