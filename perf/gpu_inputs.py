"""What models of real size are fed: questions about volumes of synthetic slices, made in memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from PIL import Image as PILImage

from benchmarks import schema
from benchmarks.schema import Answer, Record, Source
from perf.workload import GRAIN, GROUP, WORDS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WORDS_EACH = 20  # of a question, and of an answer; each is a token


class Processor:
    """Tokenizer and image processor of a Qwen3-VL, without the video part, which needs torchvision."""

    def __init__(self) -> None:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        from models.tiny import CHAT_TEMPLATE, train_tokenizer

        words = WORDS.split()
        self.tokenizer: PreTrainedTokenizerBase = train_tokenizer([f"{word} {word}" for word in words], 1024)
        self.chat_template = CHAT_TEMPLATE
        self.image_token_id: int = self.tokenizer.convert_tokens_to_ids("<|image_pad|>")
        self.image_processor: Any = Qwen2VLImageProcessorPil(
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
            patch_size=16,
            temporal_patch_size=2,
            merge_size=2,
            size={"shortest_edge": 1024, "longest_edge": 16_777_216},
        )

    def apply_chat_template(self, messages: list[dict[str, Any]], **keywords: Any) -> str:
        """As the tokenizer's."""
        text: str = self.tokenizer.apply_chat_template(messages, **keywords)
        return text


class Slices:
    """Pictures that exist in memory alone: smooth grey noise, drawn from their path."""

    def __call__(self, image: schema.Image, where: str) -> PILImage.Image:  # noqa: ARG002 - the protocol's arguments
        """Draws a picture."""
        grain = PILImage.frombytes("L", (GRAIN, GRAIN), random.Random(image.path).randbytes(GRAIN**2))
        return grain.resize((image.width, image.height), PILImage.Resampling.BICUBIC).convert("RGB")

    def content(self, image: schema.Image, where: str) -> str:  # noqa: ARG002 - the protocol's arguments
        """The path."""
        return image.path


def volume_records(volumes: int, *, slices: int, pixels: int) -> list[Record]:
    """Five questions about each volume, each of `WORDS_EACH` words, with answers as long.

    Args:
        volumes: How many.
        slices: Slices of each.
        pixels: Side of a slice, a multiple of 32.
    """
    records: list[Record] = []
    for volume in range(volumes):
        images = tuple(schema.Image(path=f"{volume}/{number}", width=pixels, height=pixels) for number in range(slices))
        for number in range(GROUP):
            name = f"{volume}-{number}"
            records.append(
                Record(
                    id=name,
                    benchmark="perf",
                    split="train",
                    task="volumes",
                    group=str(volume),
                    images=images,
                    question=_words(f"question {name}"),
                    target=Answer(text=_words(f"answer {name}")),
                    source=Source(id=name, file="none", row=len(records) + 1),
                )
            )
    return records


def _words(name: str) -> str:
    return " ".join(random.Random(name).choices(WORDS.split(), k=WORDS_EACH))
