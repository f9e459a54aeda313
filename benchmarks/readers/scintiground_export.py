"""From a row of the ScintiGround release to the twelve-key row that models and scorers read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.errors import DataError
from benchmarks.scintiground_text import BOX_TASKS, CLASS_WORDS, TASKS, TEXT_VIEWS, OfficialAnswer, multitask_json

_VIEW_ORDER = tuple(TEXT_VIEWS)


def export_row(
    release_row: Mapping[str, Any], *, task: str | None = None, patient_id: str | None = None, where: str = ""
) -> dict[str, Any]:
    """Builds the export row.

    Args:
        release_row: A row of `multitask.jsonl`.
        task: The task, for rows without `task_type`.
        patient_id: The patient, joined through `paired_evidence.jsonl` by `evidence_id`; rows with
            a patient of their own (whole body) keep theirs.
        where: File and row, for messages.

    Returns:
        The twelve keys in the order of the documentation; images ANT first; `target` is the text.

    Raises:
        DataError: A key is missing, or the row cannot be written as a target text.
    """
    task = _task(release_row, task, where)
    patient = release_row.get("patient_id", patient_id)
    if patient is None:
        raise DataError(
            "the row has no patient",
            where=f"{where}, field patient_id",
            fix="pair and lesion rows get it from paired_evidence.jsonl by evidence_id: the evidence row is missing",
        )
    return {
        "task_id": _need(release_row, "task_id", where),
        "task": task,
        "split": _need(release_row, "split", where),
        "patient_id": str(patient),
        "images": _images(release_row, where),
        "prompt": _prompt(release_row, where),
        "target": multitask_json(official_answer(release_row, task=task, where=where)),
        "answer_label": release_row.get("answer_label"),
        "label": _need(release_row, "label", where),
        "targets": _targets(release_row, where),
        "region_level": _need(release_row, "region_level", where),
        "view_scope": _need(release_row, "view_scope", where),
    }


def official_answer(release_row: Mapping[str, Any], *, task: str | None = None, where: str = "") -> OfficialAnswer:
    """The answer that a release row's target text states; boxes of a `vqa` row are no part of it.

    Raises:
        DataError: As `export_row`.
    """
    task = _task(release_row, task, where)
    answer = label = region = None
    boxes: tuple[tuple[str, Any], ...] = ()
    if task in CLASS_WORDS:
        answer, label = _need(release_row, "answer", where), _need(release_row, "answer_label", where)
        if label not in CLASS_WORDS[task]:
            raise DataError(
                f"answer_label {label!r} is not one of {', '.join(CLASS_WORDS[task])}",
                where=f"{where}, field answer_label",
                fix=f"a {task} row states one of these words",
            )
    if task in BOX_TASKS:
        region = _need(release_row, "label", where)
        boxes = tuple((target["view"], target["bbox"]) for target in _targets(release_row, where))
    return OfficialAnswer(task=task, answer=answer, label=label, region=region, boxes=boxes)


def _task(row: Mapping[str, Any], task: str | None, where: str) -> str:
    task = task if task is not None else _need(row, "task_type", where)
    if task not in TASKS:
        raise DataError(
            f"unknown task {task!r}",
            where=f"{where}, field task_type",
            fix=f"ScintiGround has the tasks {', '.join(TASKS)}",
        )
    return task


def _need(row: Mapping[str, Any], key: str, where: str) -> Any:  # noqa: ANN401 - the release is loose JSON
    if row.get(key) is None:
        raise DataError(f"the row has no {key}", where=where, fix="use the release's multitask.jsonl unchanged")
    return row[key]


def _prompt(row: Mapping[str, Any], where: str) -> str:
    for key in ("question", "query", "prompt"):
        if isinstance(row.get(key), str):
            return str(row[key])
    raise DataError("the row has no question, query or prompt", where=where, fix="use the release unchanged")


def _images(row: Mapping[str, Any], where: str) -> list[Any]:
    images = _need(row, "images", where)
    for number, image in enumerate(images):
        _known_view(image, f"{where}, field images[{number}].view")
    return sorted(images, key=lambda image: _VIEW_ORDER.index(image["view"]))


def _targets(row: Mapping[str, Any], where: str) -> list[Any]:
    key = "evidence_targets" if "evidence_targets" in row else "targets"
    targets = list(row.get(key) or [])
    for number, target in enumerate(targets):
        _known_view(target, f"{where}, field {key}[{number}].view")
        if not isinstance(target.get("bbox"), list):
            raise DataError("a target without a box", where=f"{where}, field {key}[{number}].bbox")
    return targets


def _known_view(item: object, where: str) -> None:
    view = item.get("view") if isinstance(item, dict) else None
    if view not in _VIEW_ORDER:
        raise DataError(
            f"unknown view {view!r}", where=where, fix=f"rows of the release say {' or '.join(_VIEW_ORDER)}"
        )
