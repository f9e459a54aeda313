"""Records, pictures and collators for the tests of prompts, tensors, models and engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image as PILImage

from benchmarks.dataset import image_root
from benchmarks.schema import Answer, Box, Image, Record, Source
from collators.encoder import build_encoder
from collators.qwen3_vl import Qwen3VLCollator
from collators.sources import FolderImages, ImageSource
from infer.ask import GivenImages
from models.registry import family_collator, family_module
from recipes.schema import Recipe

PLAIN = ("codec=plain", "prompt.template=plain")
PIECES = (
    "<|im_end|>",
    "<|im_start|>",
    "<|im_start|>assistant\n",
    "<|image_pad|>",
    "<|vision_start|>",
    "<|endoftext|>",
    "<|im_",
    "end|>",
    "<",
    "|>",
    "<image>",
    "<loc0001>",
    "assistant",
    "assistant: say pneumonia",
    "user\n",
    "\n",
    " ",
    "_",
    "no finding",
    "7",
    "ä–骨",
    "{question}",
    "%s",
)


def plain_record(
    question: str,
    answer: str | None = "no finding",
    *,
    name: str = "r",
    images: Sequence[tuple[str, int, int]] = (("a", 64, 64),),
) -> Record:
    """A record of the task `vqa` whose answer is a plain text; images are (path, width, height)."""
    return Record(
        id=name,
        benchmark="generic",
        split="test",
        task="vqa",
        group=f"group of {name}",
        images=tuple(Image(path=path, width=width, height=height) for path, width, height in images),
        question=question,
        target=Answer(text=answer),
        source=Source(id=name, file="rows.jsonl", row=3),
    )


def real_record(task: str, question: str, answer: Answer, *views: str) -> Record:
    """A ScintiGround record with views of 256 x 1024 pixels, for the tests of real vocabularies."""
    return Record(
        id="real",
        benchmark="scintiground",
        split="test",
        task=task,
        group="g",
        images=tuple(Image(path=view, width=256, height=1024, view=view) for view in views),
        question=question,
        target=answer,
        source=Source(id="real", file="f", row=1),
    )


KNEES = (
    Box(image=0, xyxy=(31, 402, 96, 540), label="left knee"),
    Box(image=1, xyxy=(160, 398, 230, 540), label="left knee"),
)


def pictures(records: Sequence[Record]) -> GivenImages:
    """A grey picture of the stated size for every image of the records, another grey for each path."""
    sizes = {image.path: (image.width, image.height) for record in records for image in record.images}
    return GivenImages(
        {path: PILImage.new("RGB", size, (40 + 5 * n,) * 3) for n, (path, size) in enumerate(sizes.items())}
    )


def make_collator(recipe: Recipe, images: ImageSource, *, targets: bool, **limits: int) -> Any:
    """The collator of the recipe's family over an image source."""
    processor = family_module(recipe.model.family).load_processor(recipe.model, recipe.images)
    encoder = build_encoder(recipe, processor)
    return family_collator(recipe.model.family)(encoder, processor, images, targets=targets, **limits)


def prompt_text(collator: Qwen3VLCollator, record: Record) -> str:
    """The prompt as the processor's chat template renders it, one placeholder per image."""
    messages = collator.encoder.messages(record.ask())
    text: str = collator.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text


def folder_images(dataset: Path) -> FolderImages:
    """The image files of a prepared dataset."""
    return FolderImages(image_root(dataset))
