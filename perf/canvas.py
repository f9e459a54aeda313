"""How fast canvases are drawn and location codes are written and read, on one core and without a model.

    python -m perf canvas

Canvases: from the two open views of a patient, 256 x 1024 pixels each, to the pixel values float32[3, S, S] of a
square of 224 or 448 pixels, squashed or padded. Ours draws the square (`draw_canvas`) and lets PaliGemma's image
processor normalise it. The baseline, `stock`, pastes both views onto a picture of their size with Pillow and lets the
same processor resize it too (torchvision, bicubic and antialiased like ours). Both round and clip to 8
bits between the two directions, Pillow after the vertical one and torchvision after the horizontal one, so that single
pixels beside bright edges differ. Codecs and geometry: `perf.codecs`.

The sides are measured in alternating order, median (lowest-highest) of all rounds. The last line is JSON: canvases,
answers, texts and boxes per second, the largest difference of the pixel values in grey levels of 255, how far boxes
are moved, and the memory that all of it took at its peak.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from PIL import Image as PILImage
from tqdm import tqdm

from benchmarks.dataset import image_root, read_records
from benchmarks.schema import Record
from collators.canvas import draw_canvas
from collators.sources import FolderImages
from infer.ask import GivenImages
from perf.codecs import CodecFigures, GeometryFigures, measure_codecs, measure_geometry
from perf.phantoms import write_phantoms
from perf.rounds import Spread, alternating, spread
from recipes.inputs import Canvas

if TYPE_CHECKING:
    from torch import Tensor

Resize = Literal["squash", "pad"]
SIZES = (224, 448)
SIDES = ("stock", "ours")
VIEWS = ("ANT", "POST")
BATCH = 8
ONE = 1.01  # a grey level, and the rounding of float32


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasFigures:
    """What canvases of one form take.

    Attributes:
        size: Side of the square in pixels.
        resize: As in the recipe's canvas.
        rates: Side -> canvases per second.
        difference: Largest difference of a pixel value between the sides, in grey levels of 255.
        beyond: Share of pixel values that differ by more than one grey level.
    """

    size: int
    resize: Resize
    rates: dict[str, Spread]
    difference: float
    beyond: float


def run_canvas(*, patients: int, questions: int, rounds: int) -> None:
    """Measures and prints.

    Args:
        patients: Patients, each with one canvas.
        questions: Questions drawn for each patient and task, for the codecs.
        rounds: Measurements of each side.
    """
    from train.device_memory import PeakMemory, peak_resident

    with tempfile.TemporaryDirectory() as folder:
        data = write_phantoms(Path(folder), patients=patients, questions=questions)
        records = list(read_records(data, "train"))
        opened = FolderImages(image_root(data))
        pictures = {image.path: opened(image, record.place) for record in records for image in record.images}
    peak = PeakMemory()
    shown = list({record.group: record for record in records if len(record.images) == len(VIEWS)}.values())
    canvases = [
        measure_canvases(shown, GivenImages(pictures), size=size, resize=resize, rounds=rounds)
        for size in SIZES
        for resize in get_args(Resize)
    ]
    plan = Canvas(size=SIZES[0], order=VIEWS, missing="black")
    codecs, geometry = measure_codecs(records, plan, rounds=rounds), measure_geometry(records, plan, rounds=rounds)
    _show(canvases, codecs, geometry)
    figures = {
        "benchmark": "canvas",
        "patients": len(shown),
        "answers": len(records),
        "rounds": rounds,
        "canvases": [asdict(each) for each in canvases],
        "codecs": {name: asdict(each) for name, each in codecs.items()},
        "geometry": asdict(geometry),
        "growth_mib": round(peak.measured() / 1024**2, 1),
        "peak_mib": round(peak_resident() / 1024**2, 1),
    }
    print(f"peak {figures['peak_mib']} MiB, {figures['growth_mib']} MiB above the open pictures")
    print(json.dumps(figures))


def measure_canvases(
    records: Sequence[Record], images: GivenImages, *, size: int, resize: Resize, rounds: int
) -> CanvasFigures:
    """Draws every record's canvas on both sides in turn.

    Args:
        records: Records with an anterior and a posterior view, in this order.
        images: Their open pictures.
        size: Side of the square in pixels.
        resize: As in the recipe's canvas.
        rounds: Measurements of each side.
    """
    from transformers import SiglipImageProcessor

    processor = SiglipImageProcessor(size={"height": size, "width": size})
    plan = Canvas(size=size, order=VIEWS, missing="black", resize=resize)
    draw: dict[str, Callable[[Record], PILImage.Image]] = {
        "stock": lambda record: stock_canvas(record, images, resize=resize),
        "ours": lambda record: draw_canvas(record, plan, images),
    }

    def pixels(side: str) -> list[Tensor]:
        """float32[B, 3, S, S] of each batch."""
        return [
            processor([draw[side](record) for record in records[start : start + BATCH]], return_tensors="pt")[
                "pixel_values"
            ]
            for start in range(0, len(records), BATCH)
        ]

    # Once before the clock starts; what differs is the same every time.
    levels = processor.image_std[0] * 255
    differences = [(stock - ours).abs() * levels for stock, ours in zip(pixels("stock"), pixels("ours"), strict=True)]
    largest = max(float(batch.max()) for batch in differences)
    beyond = sum(int((batch > ONE).sum()) for batch in differences) / sum(batch.numel() for batch in differences)
    del differences
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    for side in tqdm(alternating(SIDES, rounds), desc=f"{size} px, {resize}", unit="pass"):
        start = time.perf_counter()
        pixels(side)
        rates[side].append(len(records) / (time.perf_counter() - start))
    return CanvasFigures(
        size=size,
        resize=resize,
        rates={side: spread(values, 1) for side, values in rates.items()},
        difference=round(largest, 2),
        beyond=beyond,
    )


def stock_canvas(record: Record, images: FolderImages | GivenImages, *, resize: Resize) -> PILImage.Image:
    """All views of a record side by side, as one pastes them without this project; resizing is left to others.

    Args:
        record: The record.
        images: Opens its images.
        resize: `pad` fills the picture up to a square with black, at the right or at the bottom.
    """
    views = [images(image, record.place) for image in record.images]
    width, height = sum(view.width for view in views), max(view.height for view in views)
    if resize == "pad":
        width = height = max(width, height)
    picture = PILImage.new("RGB", (width, height))
    left = 0
    for view in views:
        picture.paste(view, (left, 0))
        left += view.width
    return picture


def _show(canvases: list[CanvasFigures], codecs: dict[str, CodecFigures], geometry: GeometryFigures) -> None:
    for each in canvases:
        stock, ours = each.rates["stock"], each.rates["ours"]
        print(
            f"{each.size} px, {each.resize:<6}  stock {_text(stock)}, ours {_text(ours)} canvases/s "
            f"({ours.median / stock.median:.2f} times); "
            f"largest difference {each.difference:g} of 255, {each.beyond:.3%} of the values differ by more than 1"
        )
    for name, figures in codecs.items():
        print(
            f"{name:<17}  {_text(figures.encode)} answers/s written, {_text(figures.decode)} texts/s read; "
            f"{figures.changed} changed, edges moved by up to {_pixels(figures.moved)}"
        )
    print(
        f"place and locate   {_text(geometry.boxes)} boxes/s; edges moved by up to {_pixels(geometry.moved)}, "
        f"half a location code is {_pixels(geometry.half_bin)}"
    )


def _text(values: Spread) -> str:
    return f"{values.median:,.0f} ({values.lowest:,.0f}-{values.highest:,.0f})"


def _pixels(values: tuple[float, float]) -> str:
    return f"{values[0]:.2f} x {values[1]:.2f} px"
