"""Reads a ScintiGround release folder.

Two forms are understood; a folder that has both is read in the first:

* `multitask.jsonl`, all rows. Pair and lesion rows do not name their patient, so that
  `paired_evidence.jsonl` must lie beside it and is joined by `evidence_id`.
* `multitask_train.jsonl`, `multitask_val.jsonl`, `multitask_test.jsonl` (any of them): the twelve-key
  export rows. The answer sentence is read from the target text, which must agree with the row.

Both give the same records, except for what an export row does not hold: the strata `interaction_type`,
`question_form`, `label_conflict` and `lesion_class`, the place in the release, and the order, which is
always that of the rows. Files listed in `SHA256SUMS.txt` must have the listed hash.

The images are those of BS-80K, which the release may not include. Of a row's image path, what counts is
`wholeBodyANT/<name>` or `wholeBodyPOST/<name>`; it is looked up in `bs80k/`, in `bs80k-imaging-raw/`
or directly in the image root, whichever exists. A path without such a part is taken as it is.

Whether labels, boxes and views obey the benchmark is checked by `benchmarks.scintiground_rules` on the
records, whatever reader they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from benchmarks.checksums import hash_sources
from benchmarks.errors import DataError
from benchmarks.readers.base import Release, RowFaults
from benchmarks.readers.scintiground_rows import EvidenceRow, ExportRow, MultitaskRow, RowBox, RowImage, TargetText
from benchmarks.schema import SPLITS, Answer, Box, Image, Record, Source
from benchmarks.scintiground_text import BOX_TASKS, TEXT_VIEWS, region_text

READER = "scintiground@1"
MULTITASK = "multitask.jsonl"
EVIDENCE = "paired_evidence.jsonl"
_FIX = "mend the row in the release, or report it to the release's authors"
_VIEW_ORDER = {"ANT": 0, "POST": 1}
_FOLDERS = ("wholeBodyANT", "wholeBodyPOST")
_STRATA = ("interaction_type", "question_form", "label_conflict", "lesion_class")


def open_release(release: Path, image_root: Path | None = None) -> Release:
    """Opens a release folder.

    Args:
        release: Folder of the release.
        image_root: Folder of BS-80K; the release folder if not given.

    Returns:
        The records and faults of all rows in file order.

    Raises:
        DataError: Files are missing, or a checksum differs.
    """
    if not release.is_dir():
        raise DataError(f"{release} is not a folder", fix="give the folder of the ScintiGround release")
    root = image_root or release
    prefix = _image_prefix(root, given=image_root is not None)
    exports = [f"multitask_{split}.jsonl" for split in SPLITS if (release / f"multitask_{split}.jsonl").is_file()]
    if (release / MULTITASK).is_file():
        if not (release / EVIDENCE).is_file():
            raise DataError(
                f"{EVIDENCE} is missing: pair and lesion rows do not name their patient",
                where=str(release),
                fix=f"copy {EVIDENCE} of the same release beside {MULTITASK}",
            )
        names, items = [MULTITASK, EVIDENCE], _read_multitask(release, prefix)
    elif exports:
        names, items = exports, _read_exports(release, exports, prefix)
    else:
        raise DataError(
            f"neither {MULTITASK} nor multitask_train.jsonl, multitask_val.jsonl or multitask_test.jsonl is here",
            where=str(release),
            fix="give the folder that holds the release's JSONL files; `python -m benchmarks ls` says where to get it",
        )
    return Release(items=items, image_root=root, sources=hash_sources(release, names), reader=READER)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What the two forms of a row say differently."""

    source: Source
    task: str
    patient: str
    question: str
    sentence: str | None
    targets: tuple[RowBox, ...]
    strata: dict[str, str]


def _read_multitask(release: Path, prefix: str) -> Iterator[Record | DataError]:
    evidence: dict[str, EvidenceRow] = {}
    for number, pair in _rows(release, EVIDENCE, EvidenceRow):
        if isinstance(pair, DataError):
            yield pair
            continue
        if evidence.setdefault(pair.evidence_id, pair) is not pair:
            yield DataError(
                f"evidence_id {pair.evidence_id!r} occurs twice",
                where=f"{EVIDENCE} row {number}, field evidence_id",
                fix="which patient is meant would be a guess: get the release again",
            )
    for number, row in _rows(release, MULTITASK, MultitaskRow):
        if isinstance(row, DataError):
            yield row
            continue
        faults = RowFaults(f"{MULTITASK} row {number}, record {row.task_id}", _FIX)
        targets = row.evidence_targets if row.evidence_targets is not None else row.targets
        parts = _Parts(
            source=Source(id=row.task_id, file=MULTITASK, row=number),
            task=row.task_type,
            patient=_patient(row, evidence, faults),
            question=_prompt(row, faults),
            sentence=row.answer,
            targets=targets or (),
            strata=_strata(row),
        )
        yield from _record(row, parts, faults, prefix)


def _read_exports(release: Path, names: list[str], prefix: str) -> Iterator[Record | DataError]:
    for name in names:
        for number, row in _rows(release, name, ExportRow):
            if isinstance(row, DataError):
                yield row
                continue
            faults = RowFaults(f"{name} row {number}, record {row.task_id}", _FIX)
            if name != f"multitask_{row.split}.jsonl":
                faults.add("split", f"split {row.split!r} does not belong into {name}")
            faults.require(prompt=row.prompt, patient_id=row.patient_id)
            parts = _Parts(
                source=Source(id=row.task_id, file=name, row=number),
                task=row.task,
                patient=row.patient_id,
                question=row.prompt,
                sentence=_answer_sentence(row, faults),
                targets=row.targets,
                strata={},
            )
            yield from _record(row, parts, faults, prefix)


def _rows(release: Path, name: str, kind: type[Any]) -> Iterator[tuple[int, Any]]:
    """Yields (row number from 1, decoded row or fault) for every line of a file."""
    decoder = msgspec.json.Decoder(kind)
    with (release / name).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield number, decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                yield (
                    number,
                    DataError(
                        f"not a row of the release: {error}",
                        where=f"{name} row {number}",
                        fix="the file was changed or damaged: get the release again",
                    ),
                )


def _patient(row: MultitaskRow, evidence: dict[str, EvidenceRow], faults: RowFaults) -> str:
    own = None if row.patient_id is None else str(row.patient_id)
    if row.evidence_id is None:
        if own is None:
            faults.add("evidence_id", "the row has neither an evidence_id nor a patient_id")
        else:
            faults.require(patient_id=own)
        return own or ""
    pair = evidence.get(row.evidence_id)
    if pair is None:
        faults.add("evidence_id", f"{row.evidence_id!r} is not in {EVIDENCE}, so that the patient is unknown")
        return own or ""
    joined = str(pair.patient_id)
    if own not in (None, joined):
        faults.add("patient_id", f"the row says patient {own!r}, {EVIDENCE} says {joined!r}")
    if pair.split != row.split:
        faults.add("split", f"the row is in {row.split}, its evidence {row.evidence_id!r} in {pair.split}")
    return joined


def _prompt(row: MultitaskRow, faults: RowFaults) -> str:
    """`prompt` is a copy of `question` or `query`; older files have only one of them."""
    given = {text for text in (row.prompt, row.question, row.query) if text is not None}
    if len(given) > 1:
        faults.add("prompt", f"prompt and question or query differ: {sorted(given)}")
    prompt = min(given, default="")
    faults.require(prompt=prompt)
    return prompt


def _answer_sentence(row: ExportRow, faults: RowFaults) -> str | None:
    """Reads the sentence from the target text and checks the rest of the text against the row."""
    try:
        target = msgspec.json.decode(row.target, type=TargetText)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        faults.add("target", f"not a target text: {error}")
        return None
    boxed = row.task in BOX_TASKS
    boxes = [(box.view, box.bbox) for box in target.boxes]
    wanted = [(TEXT_VIEWS[box.view], box.bbox) for box in row.targets] if boxed else []
    region = region_text(row.label) if boxed else None
    for field, said, expected in (
        ("task", target.task, row.task),
        ("class", target.class_, row.answer_label),
        ("region", target.region, region),
        ("boxes", boxes, wanted),
    ):
        if said != expected:
            faults.add("target", f"the target text has {field} {said!r}, the row says {expected!r}")
    return target.answer


def _strata(row: MultitaskRow) -> dict[str, str]:
    values = {name: getattr(row, name) for name in _STRATA}
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None
    }


def _record(
    row: MultitaskRow | ExportRow, parts: _Parts, faults: RowFaults, prefix: str
) -> Iterator[Record | DataError]:
    """Yields one record, or all faults of the row."""
    faults.require(task_id=row.task_id, label=row.label)
    ordered = sorted(row.images, key=lambda image: _VIEW_ORDER[image.view])
    images = [_image(image, prefix, faults) for image in ordered]
    index = {image.view: number for number, image in enumerate(ordered)}
    boxes = []
    for number, target in enumerate(parts.targets):
        field = f"targets[{number}]"
        if target.view not in index:
            faults.add(field, f"the box is for view {target.view}, which the row does not show")
            continue
        try:
            boxes.append(Box(image=index[target.view], xyxy=target.bbox, label=row.label))
        except ValueError as error:
            faults.add(f"{field}.bbox", str(error))
    if faults.found:
        yield from faults.found
        return
    yield Record(
        id=row.task_id,
        benchmark="scintiground",
        split=row.split,
        task=parts.task,
        group=parts.patient,
        images=tuple(image for image in images if image is not None),
        question=parts.question,
        target=Answer(text=parts.sentence, label=row.answer_label, boxes=tuple(boxes)),
        strata={
            "region": row.label,
            "view_scope": row.view_scope,
            "region_level": row.region_level,
            **parts.strata,
        },
        source=parts.source,
    )


def _image(image: RowImage, prefix: str, faults: RowFaults) -> Image | None:
    parts = PurePosixPath(image.image).parts
    folder = next((name for name in _FOLDERS if name in parts[:-1]), None)
    path = image.image
    if folder is not None:
        path = prefix + "/".join(parts[parts.index(folder) :])
        if folder != f"wholeBody{image.view}":
            faults.add("images", f"image {image.image!r} is given as view {image.view}")
    try:
        return Image(path=path, width=image.image_size[0], height=image.image_size[1], view=image.view)
    except ValueError as error:
        faults.add("images", str(error))
        return None


def _image_prefix(root: Path, *, given: bool) -> str:
    """Where under the root the two whole-body folders lie; decided once for the whole release."""
    for prefix in ("bs80k/", "bs80k-imaging-raw/", ""):
        if any((root / prefix / folder).is_dir() for folder in _FOLDERS):
            return prefix
    return "" if given else "bs80k/"
