"""What a ScintiGround record must obey beyond the record schema.

Applied to every record of the benchmark, whichever reader made it: the release's, the phantom's, or the
generic reader with `--benchmark scintiground`.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.schema import Record
from benchmarks.scintiground_text import BOX_TASKS, CLASS_WORDS, TASKS

SCOPES: dict[str, frozenset[str]] = {
    "ANT": frozenset({"ANT"}),
    "POST": frozenset({"POST"}),
    "BOTH": frozenset({"ANT", "POST"}),
}
LEVELS = ("whole_body", "bone_region", "metastasis")
WHOLE_BODY = "whole_body"


def problems(record: Record) -> Iterator[tuple[str, str]]:
    """Yields (field, what is wrong) for every breach of the benchmark's rules."""
    if record.task not in TASKS:
        yield "task", f"unknown task {record.task!r}; the benchmark has {', '.join(TASKS)}"
        return
    yield from _images(record)
    yield from _answer(record)
    yield from _boxes(record)
    yield from _strata(record)


def default_strata(record: Record) -> dict[str, str]:
    """Strata that can be told from the record itself, for people's own data.

    The region is the boxes' common label, or the whole body; the scope is the boxes' views, or the
    images' views if there are no boxes.
    """
    labels = {box.label for box in record.target.boxes if box.label is not None}
    region = labels.pop() if len(labels) == 1 else WHOLE_BODY
    shown = {image.view for image in record.images}
    views = {record.images[box.image].view for box in record.target.boxes} or shown
    scope = next((name for name, members in SCOPES.items() if members == views), "BOTH")
    level = WHOLE_BODY if region == WHOLE_BODY else "bone_region"
    return {"region": region, "view_scope": scope, "region_level": level}


def _images(record: Record) -> Iterator[tuple[str, str]]:
    views = [image.view for image in record.images]
    if views not in (["ANT"], ["POST"], ["ANT", "POST"]):
        yield "images", f"views {views}: a record shows ANT, POST, or ANT and then POST"


def _answer(record: Record) -> Iterator[tuple[str, str]]:
    legal, label = CLASS_WORDS.get(record.task, ()), record.target.label
    if legal and label not in legal:
        yield "target.label", f"label {label!r} is not legal for {record.task}: {' or '.join(legal)}"
    if not legal and label is not None:
        yield "target.label", f"label {label!r}: a {record.task} record has no class"
    if legal and not (record.target.text or "").strip():
        yield "target.text", f"a {record.task} record needs an answer sentence"
    if not legal and record.target.text is not None:
        yield "target.text", f"a {record.task} record has no answer sentence"


def _boxes(record: Record) -> Iterator[tuple[str, str]]:
    boxes = record.target.boxes
    views = [record.images[box.image].view for box in boxes]
    scope = SCOPES.get(record.strata.get("view_scope", ""))
    if len(set(views)) < len(views):
        yield "target.boxes", f"several boxes for one view: {views}"
    if record.task in BOX_TASKS and not boxes:
        yield "target.boxes", f"a {record.task} record needs a box"
    elif boxes and scope is not None and set(views) != scope:
        yield (
            "target.boxes",
            f"boxes for {', '.join(str(view) for view in views)}, view_scope is {record.strata['view_scope']}",
        )
    for number, box in enumerate(boxes):
        if box.label != record.strata.get("region"):
            yield (
                f"target.boxes[{number}].label",
                f"the box is labelled {box.label!r}, the region is {record.strata.get('region')!r}",
            )


def _strata(record: Record) -> Iterator[tuple[str, str]]:
    if not record.strata.get("region", "").strip():
        yield "strata.region", "the region is missing"
    scope = record.strata.get("view_scope")
    if scope not in SCOPES:
        yield "strata.view_scope", f"{scope!r} is not one of {', '.join(SCOPES)}"
    elif not SCOPES[scope] <= {image.view for image in record.images}:
        yield "strata.view_scope", f"{scope} is asked, but the record does not show it"
    level = record.strata.get("region_level")
    if level not in LEVELS:
        yield "strata.region_level", f"{level!r} is not one of {', '.join(LEVELS)}"
