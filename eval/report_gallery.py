"""The report's gallery: test cases with their pictures, target boxes and the systems' answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from benchmarks.dataset import image_root
from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Record
from eval.report_cases import VERDICTS, Verdict, choose_cases, verdict
from eval.report_pictures import Picture, PictureStore
from eval.report_views import View, build_views, is_volume
from eval.report_volume import Volume, build_volume
from eval.run import LoadedRun
from eval.schema import System
from eval.schema_scores import RowResult

MAX_CASES = 120
# Of a record with more images, those with boxes are shown first. A volume has a slider over its frames.
MAX_VIEWS, MAX_FRAMES = 6, 200
MAX_TEXT = 4000
NO_REGION = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One record as one system answered it.

    Attributes:
        record: The record.
        region: Its region, or `(none)`.
        system: The system's name.
        verdict: What became of it.
        row: How it was scored.
        views: The images drawn; of a volume, the frames with boxes and the one that is shown first.
        volume: The slider over the frames of a volume; `None` for other records.
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
    volume: Volume | None
    hidden_views: int
    text: str | None
    cut: int
    answer: Answer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """All cards, the pictures they share, and the values to filter by.

    Attributes:
        cards: A card per case and system.
        pictures: The pictures, each once.
        cases: How many records are shown.
        records: How many there are.
        full: Whether the page has no room for the pictures of another case.
        volumes: Whether a case is a volume.
        missing: How many image files cannot be shown.
        verdicts: The verdicts that occur, in a fixed order.
        tasks: The tasks that occur.
        regions: The regions that occur.
        systems: All systems.
    """

    cards: tuple[Card, ...]
    pictures: tuple[Picture, ...]
    cases: int
    records: int
    full: bool
    volumes: bool
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
    chosen, full = 0, False
    for place in tqdm(islice(choose_cases(systems), cases), desc="report cases", total=cases, disable=None):
        record = runs[0].records[place]
        shown = _shown_images(record, [run.predictions[place] for run in runs])
        full = not store.add([record.images[image] for image in shown], where=f"record {record.id}")
        if full:
            break
        chosen += 1
        for system, run in zip(systems, runs, strict=True):
            cards.append(_card(system, run, place, shown, store))
    return Gallery(
        cards=tuple(cards),
        pictures=tuple(store.pictures),
        cases=chosen,
        records=len(runs[0].records),
        full=full,
        volumes=any(card.volume for card in cards),
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
    return sorted(list(first)[: MAX_FRAMES if is_volume(record) else MAX_VIEWS])


def _card(system: System, run: LoadedRun, place: int, shown: Sequence[int], store: PictureStore) -> Card:
    record, prediction, row = run.records[place], run.predictions[place], system.rows[place]
    views = build_views(record, shown, prediction.answer.boxes if prediction.answer else (), row, store)
    volume = build_volume(views) if is_volume(record) else None
    text = prediction.text
    return Card(
        record=record,
        region=region_of(record),
        system=system.name,
        verdict=verdict(row),
        row=row,
        views=volume.figures if volume else views,
        volume=volume,
        hidden_views=len(record.images) - len(shown),
        text=None if text is None else text[:MAX_TEXT],
        cut=max(0, len(text or "") - MAX_TEXT),
        answer=prediction.answer,
    )


def region_of(record: Record) -> str:
    """The stratum `region`, else the label of the first target box, else `(none)`."""
    labels = [box.label for box in record.target.boxes if box.label]
    return record.strata.get("region") or (labels[0] if labels else NO_REGION)
