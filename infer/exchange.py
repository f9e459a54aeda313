"""Official submission files: writing ours, reading those of others."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from benchmarks.dataset import load_info, read_records, write_atomic
from benchmarks.errors import DataError
from benchmarks.predictions import (
    MANIFEST,
    PREDICTIONS,
    Manifest,
    Prediction,
    encode_prediction,
    read_manifest,
    read_predictions,
)
from collators.codecs.registry import get_codec
from collators.codecs.scintiground_official import official_texts
from infer.engines.base import Generated
from infer.predict import to_row


def export_scintiground(folder: Path, data: Path, out: Path) -> int:
    """Writes `{"task_id", "prediction"}` lines, the form that the official scorer reads.

    Args:
        folder: Finished prediction folder.
        data: The dataset it was made from.
        out: File to write.

    Returns:
        Number of lines.

    Raises:
        DataError: The dataset is another one or not ScintiGround, or rows are missing.
    """
    manifest = read_manifest(folder)
    info = load_info(data)
    if info.content_hash != manifest.dataset_hash:
        raise DataError(
            "the dataset is not the one these predictions were made from", where=str(data), fix="give its --data"
        )
    if info.benchmark != "scintiground":
        raise DataError(f"benchmark {info.benchmark!r} has no official submission form here", where=str(data))
    records = list(read_records(data, manifest.split))[: manifest.limit]
    rows = {row.id: row for row in read_predictions(folder)}
    missing = [record.id for record in records if record.id not in rows]
    if missing:
        raise DataError(f"{len(missing)} rows are missing, first {missing[0]}", where=str(folder), fix="predict again")
    texts = official_texts(records, [rows[record.id] for record in records], manifest.codec)
    lines = [json.dumps({"task_id": key, "prediction": text}, ensure_ascii=False) for key, text in texts.items()]
    write_atomic(out, ("\n".join(lines) + "\n").encode())
    return len(lines)


def import_scintiground(file: Path, data: Path, split: str, out: Path, *, name: str, codec: str) -> Path:
    """Makes a prediction folder from `{"task_id", "prediction"}` lines made by others.

    Raises:
        DataError: A broken line, a repeated, missing or unknown id, or a folder that is not empty.
    """
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty", fix="give another --out")
    texts: dict[str, str] = {}
    # Bytes: as text, other line ends of Unicode would split too, and they may stand inside a prediction.
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        where = f"{file} row {number}"
        try:
            row = msgspec.json.decode(line, type=dict[str, object])
            key, text = row["task_id"], row["prediction"]
        except (msgspec.ValidationError, msgspec.DecodeError, KeyError) as error:
            raise DataError(
                f"not a line with task_id and prediction: {error}", where=where, fix="mend the line"
            ) from error
        if not isinstance(key, str) or not isinstance(text, str):
            raise DataError("task_id and prediction must be texts", where=where, fix="mend the line")
        if key in texts:
            raise DataError(f"task_id {key!r} occurs twice", where=where, fix="keep one of the lines")
        texts[key] = text
    records = list(read_records(data, split))
    unknown = sorted(set(texts) - {record.id for record in records})
    missing = [record.id for record in records if record.id not in texts]
    if unknown or missing:
        raise DataError(
            f"{len(missing)} ids of the split are missing and {len(unknown)} are unknown, "
            f"first {(missing or unknown)[0]!r}",
            where=str(file),
            fix="check --data and --split",
        )
    decode = get_codec(codec).decode
    rows: list[Prediction] = [
        to_row(record, Generated(text=texts[record.id], finish="stop"), decode) for record in records
    ]
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / PREDICTIONS, b"".join(encode_prediction(row) + b"\n" for row in rows))
    manifest = Manifest(
        name=name,
        dataset=str(data),
        dataset_hash=load_info(data).content_hash,
        split=split,
        records=len(rows),
        engine="import",
        codec=codec,
    )
    write_atomic(out / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    return out
