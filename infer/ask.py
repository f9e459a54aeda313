"""One question about images given by path: answer it and draw the boxes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image as PILImage

from benchmarks import schema
from benchmarks.draw import draw_record
from benchmarks.images import open_image
from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Record, Source
from collators.codecs.base import Codec
from infer.load import System
from infer.predict import to_row
from recipes.errors import UserError


@dataclass(frozen=True, slots=True)
class GivenImages:
    """An image source over pictures that are open already."""

    pictures: dict[str, PILImage.Image]

    def __call__(self, image: schema.Image, where: str) -> PILImage.Image:  # noqa: ARG002 - the protocol's arguments
        """The picture of that name."""
        return self.pictures[image.path]

    def content(self, image: schema.Image, where: str) -> str:  # noqa: ARG002 - the protocol's arguments
        """Hash of the picture's pixels."""
        picture = self.pictures[image.path]
        return hashlib.sha256(f"{picture.mode} {picture.size}\n".encode() + picture.tobytes()).hexdigest()


def check_task(codec: Codec, task: str) -> None:
    """Refuses a task that the answer form does not know: whatever the model said, it could not be read.

    Raises:
        UserError: It does not; names those that it knows.
    """
    tasks = codec.tasks
    if tasks is not None and task not in tasks:
        raise UserError(
            f"codec {codec.name} has no task {task!r}", where="--task", fix=f"its tasks are {', '.join(tasks)}"
        )


def ask(
    system: System,
    paths: Sequence[Path],
    question: str,
    *,
    task: str,
    views: Sequence[str] = (),
    frames: Sequence[int] = (),
) -> tuple[Prediction, PILImage.Image]:
    """Answers one question.

    Args:
        system: Loaded model and encoder.
        paths: Image files in the order in which the model sees them.
        question: The question.
        task: Task name, as the codec knows it.
        views: View name per image (`ANT`, `POST`), or none.
        frames: Slice number per image, from 1, or none.

    Returns:
        The prediction row, and a picture of all images with the predicted boxes.

    Raises:
        UserError: An image cannot be read, or the number of views or frames is another than that of images.
    """
    for option, given in (("view", views), ("frame", frames)):
        if given and len(given) != len(paths):
            raise UserError(
                f"{len(given)} {option}s for {len(paths)} images",
                fix=f"give --{option} once per --image, or not at all",
            )
    pictures = {f"image-{number}": open_image(path, where="--image") for number, path in enumerate(paths)}
    named: list[str | None] = list(views) or [None] * len(paths)
    numbered: list[int | None] = list(frames) or [None] * len(paths)
    images = tuple(
        schema.Image(path=name, width=picture.width, height=picture.height, view=view, frame=frame)
        for (name, picture), view, frame in zip(pictures.items(), named, numbered, strict=True)
    )
    record = Record(
        id="question",
        benchmark="generic",
        split="test",
        task=task,
        group="question",
        images=images,
        question=question,
        target=Answer(),
        source=Source(id="question", file="command line", row=1),
    )
    generated = system.engine(GivenImages(pictures)).generate([record])[0]
    row = to_row(record, generated, system.decode)
    boxes = row.answer.boxes if row.answer else ()
    caption = [question, row.text or row.error or ""]
    titles = list(views) or [f"frame {frame}" for frame in frames]
    drawn = draw_record(list(pictures.values()), (), boxes, titles=titles, caption=caption)
    return row, drawn
