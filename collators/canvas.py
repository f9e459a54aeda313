"""The canvas of a record: its images, from wherever they come, as the one picture that a model sees."""

from __future__ import annotations

from PIL import Image as PILImage

from benchmarks.canvas import compose, plan_layout
from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.sources import ImageSource
from recipes.inputs import Canvas


def draw_canvas(record: Record, plan: Canvas, images: ImageSource) -> PILImage.Image:
    """Composes a record's images.

    Args:
        record: The record.
        plan: How its images stand on the canvas.
        images: Opens an image of the record.

    Returns:
        RGB picture of `plan.size` x `plan.size` pixels.

    Raises:
        DataError: An image cannot be read, there is none, or they do not fit the plan.
    """
    try:
        layout = plan_layout(plan, record.images)
    except DataError as error:
        raise DataError(error.message, where=record.place, fix=error.fix) from error
    return compose([images(image, record.place) for image in record.images], layout)
