"""SGMRI-VQA's inference files: one JSON file per level, in the folders where the published evaluator looks for them.

What the way out and back in loses: label scores; tokens that were not counted come back as 0. Where the run's codec is no
official one, the answers written as `sgmri_text` take the place of the model's own texts, and what that form cannot say
(labels of boxes) is lost; the published profile stays the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.dataset import write_atomic
from benchmarks.errors import DataError
from benchmarks.predictions import Manifest, Prediction
from benchmarks.schema import Record
from benchmarks.sgmri import EXTRA_GROUNDING, LEVELS
from collators.codecs.base import Decode
from collators.codecs.sgmri_official import (
    FAILED,
    LEVEL_NAMES,
    WRITTEN_AS,
    inference_path,
    official_inference,
    official_task,
)
from infer.engines.base import Generated
from infer.exchange import Read
from infer.predict import to_row

CODEC = WRITTEN_AS
FILES = "*_inference.json"
SHOWN = 5
_Question = tuple[str, str, str, str]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an entry of `results`; `collators.codecs.sgmri_official` says more of it."""

    sample_id: str
    model_output: str
    error: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish: str | None = None
    volume_id: str | None = None
    level: str | None = None
    slice_num: int | None = None
    task: str | None = None
    question: str | None = None


def write(records: Sequence[Record], rows: Sequence[Prediction], manifest: Manifest, out: Path) -> list[Path]:
    """See `infer.exchange.Exchange.write`; `out` is the folder that becomes the evaluator's output folder."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file", fix="name a folder: the official form is a file per level below it")
    written = []
    present = {official_task(record)[0] for record in records}
    for level in LEVELS:
        if level in present:
            path = out / inference_path(manifest, level)
            path.parent.mkdir(parents=True, exist_ok=True)
            inference = official_inference(records, rows, manifest, level)
            write_atomic(path, json.dumps(inference, indent=2, ensure_ascii=False).encode())
            written.append(path)
    return written


def read(source: Path, records: Sequence[Record], decode: Decode) -> Read:
    """See `infer.exchange.Exchange.read`; `source` is a file, or a folder with the files of one model below it."""
    headers: dict[str, dict[str, Any]] = {}
    entries: list[tuple[str, Result]] = []
    for path in _files(source):
        headers[_name(path, source)], found = _load(path)
        entries += [(f"{path} results[{number}]", result) for number, result in enumerate(found)]
    models = {str(header.get("model_key")) for header in headers.values()}
    if len(models) > 1:
        raise DataError(
            f"files of {len(models)} models: {', '.join(sorted(models))}",
            where=str(source),
            fix="name the file of one model, or a folder that holds no other",
        )
    matched, extra = _match(entries, records, source)
    rows = [_row(record, matched[record.id], decode) for record in records]
    failed = sum(row.error is not None for row in rows)
    notes = [f"{extra} extra grounding samples left out: they are no questions of the benchmark, nor scored"] * (
        extra > 0
    )
    notes += [f"{failed} failed calls: their rows hold the error and no answer"] * (failed > 0)
    ids = [header["model_id"] for header in headers.values() if isinstance(header.get("model_id"), str)]
    return Read(rows=rows, notes=notes, weights=ids[0] if ids else None, environment={"official_headers": headers})


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    found = sorted(source.rglob(FILES))
    if not found:
        raise DataError(
            f"there is no file {FILES} in {source}", fix="name an inference file or a folder that holds some"
        )
    return found


def _name(path: Path, source: Path) -> str:
    """The file below `source`: both levels may have files of one name."""
    return path.name if path == source else path.relative_to(source).as_posix()


def _load(path: Path) -> tuple[dict[str, Any], list[Result]]:
    """What a file says before its results, and these."""
    fix = "the layout is that of the published code, as `python -m infer export` writes it"
    try:
        header = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        entries = msgspec.convert(header.pop("results"), list[Any])
    except (msgspec.ValidationError, msgspec.DecodeError, KeyError) as error:
        raise DataError(f"not an inference file: {error}", where=str(path), fix=fix) from error
    results = []
    for number, entry in enumerate(entries):
        try:
            results.append(msgspec.convert(entry, Result))
        except msgspec.ValidationError as error:
            raise DataError(f"not a result: {error}", where=f"{path} results[{number}]", fix=fix) from error
    return header, results


def _match(
    entries: Sequence[tuple[str, Result]], records: Sequence[Record], source: Path
) -> tuple[dict[str, Result], int]:
    """Result by record id, and how many extra grounding samples there are.

    Raises:
        DataError: Counts and first offenders of whatever does not answer each record exactly once.
    """
    by_id = {record.id: record for record in records}
    by_question: dict[_Question, list[Record]] = defaultdict(list)
    for record in records:
        by_question[_question(record)].append(record)
    matched: dict[str, Result] = {}
    faults: dict[str, list[str]] = {"unknown": [], "ambiguous": [], "repeated": []}
    extra = 0
    for where, result in entries:
        own = by_id.get(result.sample_id)
        found = [own] if own is not None else list(_candidates(result, by_question))
        if not found and result.task == "localization" and (result.question or "").startswith(EXTRA_GROUNDING):
            extra += 1
        elif len(found) != 1:
            faults["ambiguous" if found else "unknown"].append(f"{result.sample_id!r} ({where})")
        elif found[0].id in matched:
            faults["repeated"].append(f"{result.sample_id!r} ({where})")
        else:
            matched[found[0].id] = result
    faults["missing"] = [repr(record.id) for record in records if record.id not in matched]
    if any(faults.values()):
        raise DataError(
            f"the results do not answer the {len(records)} records of the split exactly once each: "
            + "; ".join(_offenders(kind, found) for kind, found in faults.items() if found),
            where=str(source),
            fix="check --data and --split; a folder brings both levels together, and results are matched by sample_id, "
            "else by volume_id, level, slice_num, task and question",
        )
    return matched, extra


def _question(record: Record) -> _Question:
    level, task = official_task(record)
    return record.group, LEVEL_NAMES[level], task, record.question.strip()


def _candidates(result: Result, by_question: Mapping[_Question, list[Record]]) -> Iterator[Record]:
    key = (result.volume_id or "", result.level or "", result.task or "", (result.question or "").strip())
    for record in by_question.get(key, []):
        on_volume = official_task(record)[0] == "volume"
        if on_volume or result.slice_num is None or record.images[0].frame == result.slice_num:
            yield record


def _offenders(kind: str, found: Sequence[str]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{len(found)} {kind}: {', '.join(found[:SHOWN])}{more}"


def _row(record: Record, result: Result, decode: Decode) -> Prediction:
    stored = FAILED.fullmatch(result.model_output)
    if stored is not None:
        return Prediction(id=record.id, error=stored[1])
    if result.error:
        # The published scorer reads this text all the same.
        return Prediction(id=record.id, text=result.model_output, error=result.error)
    generated = Generated(
        text=result.model_output,
        finish="length" if result.finish == "length" else "stop",
        prompt_tokens=result.prompt_tokens or 0,
        new_tokens=result.completion_tokens or 0,
    )
    return to_row(record, generated, decode)
