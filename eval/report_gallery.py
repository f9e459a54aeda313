"""The report's gallery: test cases with their pictures, target boxes and the systems' answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from benchmarks.dataset import image_root
from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Box, Record
from eval.boxes import iou
from eval.report_cases import VERDICTS, Verdict, choose_cases, verdict
from eval.report_format import number
from eval.report_pictures import Picture, PictureStore
from eval.run import LoadedRun
from eval.schema import System
from eval.schema_scores import RowResult

MAX_CASES = 120
# Of a record with more images (the slices of a volume), those with boxes are shown first.
MAX_VIEWS = 6
MAX_TEXT = 4000
# In CSS pixels: two images stand in a row of this width, each at most so high.
ROW_WIDTH, FRAME_HEIGHT = 376, 512
NO_REGION = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A box to draw, in native pixels, with the text that names it."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One image of a card.

    Attributes:
        picture: The picture.
        title: View or slice.
        display_width: Width on the page, CSS pixels.
        targets: Target boxes.
        predicted: Predicted boxes.
    """

    picture: Picture
    title: str
    display_width: int
    targets: tuple[Outline, ...]
    predicted: tuple[Outline, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One record as one system answered it.

    Attributes:
        record: The record.
        region: Its region, or `(none)`.
        system: The system's name.
        verdict: What became of it.
        row: How it was scored.
        views: The images shown.
        hidden_views: How many images of the record are not shown.
        text: The model's text, cut at `MAX_TEXT` characters; `None` if there is none.
        cut: Characters left out.
        answer: The decoded answer.
    """

    record: Record
    region: str
    system: str
    verdict: Verdict
    row: RowResult
    views: tuple[View, ...]
    hidden_views: int
    text: str | None
    cut: int
    answer: Answer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """All cards, the pictures they share, and the values to filter by."""

    cards: tuple[Card, ...]
    pictures: tuple[Picture, ...]
    cases: int
    records: int
    missing: int
    verdicts: tuple[str, ...]
    tasks: tuple[str, ...]
    regions: tuple[str, ...]
    systems: tuple[str, ...]


def build_gallery(systems: Sequence[System], runs: Sequence[LoadedRun], *, cases: int = MAX_CASES) -> Gallery | None:
    """Chooses cases and makes a card per case and system; `None` without rows of the corrected profile.

    Args:
        systems: Scored systems.
        runs: Their runs, in the same order.
        cases: At most so many records; fewer if their pictures are too large in sum.
    """
    if not all(system.rows for system in systems):
        return None
    from tqdm import tqdm

    store = PictureStore(image_root(runs[0].data))
    cards: list[Card] = []
    chosen = 0
    for place in tqdm(islice(choose_cases(systems), cases), desc="report cases", total=cases, disable=None):
        if store.full:
            break
        chosen += 1
        shown = _shown_images(runs[0].records[place], [run.predictions[place] for run in runs])
        for system, run in zip(systems, runs, strict=True):
            cards.append(_card(system, run, place, shown, store))
    return Gallery(
        cards=tuple(cards),
        pictures=tuple(store.pictures),
        cases=chosen,
        records=len(runs[0].records),
        missing=sum(bool(picture.problem) for picture in store.pictures),
        verdicts=tuple(name for name in VERDICTS if any(card.verdict == name for card in cards)),
        tasks=tuple(dict.fromkeys(sorted(card.record.task for card in cards))),
        regions=tuple(dict.fromkeys(sorted(card.region for card in cards))),
        systems=tuple(system.name for system in systems),
    )


def _shown_images(record: Record, predictions: Sequence[Prediction]) -> list[int]:
    """Numbers of the images to show, the same for every system, in the record's order."""
    everything = range(len(record.images))
    boxes = list(record.target.boxes)
    for prediction in predictions:
        boxes += prediction.answer.boxes if prediction.answer else ()
    with_boxes = [place for place in everything if any(box.image == place for box in boxes)]
    first = dict.fromkeys([*with_boxes, *everything])
    return sorted(list(first)[:MAX_VIEWS])


def _card(system: System, run: LoadedRun, place: int, shown: Sequence[int], store: PictureStore) -> Card:
    record, prediction, row = run.records[place], run.predictions[place], system.rows[place]
    boxes = prediction.answer.boxes if prediction.answer else ()
    text = prediction.text
    return Card(
        record=record,
        region=region_of(record),
        system=system.name,
        verdict=verdict(row),
        row=row,
        views=tuple(_view(record, image, boxes, row, store, width=ROW_WIDTH / min(2, len(shown))) for image in shown),
        hidden_views=len(record.images) - len(shown),
        text=None if text is None else text[:MAX_TEXT],
        cut=max(0, len(text or "") - MAX_TEXT),
        answer=prediction.answer,
    )


def region_of(record: Record) -> str:
    """The stratum `region`, else the label of the first target box, else `(none)`."""
    labels = [box.label for box in record.target.boxes if box.label]
    return record.strata.get("region") or (labels[0] if labels else NO_REGION)


def _view(
    record: Record, place: int, predicted: Sequence[Box], row: RowResult, store: PictureStore, *, width: float
) -> View:
    image = record.images[place]
    targets = [(box, overlap) for box, overlap in _with_iou(record, row) if box.image == place]
    title = " ".join(
        part for part in (image.view or "", f"slice {image.frame}" if image.frame is not None else "") if part
    )
    scale = min(width / image.width, FRAME_HEIGHT / image.height)
    return View(
        picture=store.get(image, where=f"record {record.id}"),
        title=title or f"image {place + 1}",
        display_width=max(24, round(image.width * scale)),
        targets=tuple(_outline("target", box, overlap) for box, overlap in targets),
        predicted=tuple(
            _outline("predicted", box, _best(box, [target for target, _ in targets]))
            for box in predicted
            if box.image == place
        ),
    )


def _with_iou(record: Record, row: RowResult) -> list[tuple[Box, float | None]]:
    """Target boxes with their scored IoU; a task that does not ask for boxes has none."""
    boxes = record.target.boxes
    return [(box, row.ious[place] if len(row.ious) == len(boxes) else None) for place, box in enumerate(boxes)]


def _best(box: Box, targets: Sequence[Box]) -> float | None:
    return max((iou(target.xyxy, box.xyxy) for target in targets), default=None)


def _outline(kind: str, box: Box, overlap: float | None) -> Outline:
    x1, y1, x2, y2 = box.xyxy
    where = ", ".join(f"{value:g}" for value in box.xyxy)
    label = f" {box.label}" if box.label else ""
    suffix = f", IoU {number(overlap)}" if overlap is not None else ""
    return Outline(x=x1, y=y1, width=x2 - x1, height=y2 - y1, title=f"{kind}{label} [{where}]{suffix}")
