"""ScintiGround's submission file: `{"task_id", "prediction"}` lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.dataset import write_atomic
from benchmarks.errors import DataError
from benchmarks.predictions import Manifest, Prediction
from benchmarks.schema import Record
from collators.codecs.base import Decode
from collators.codecs.scintiground_official import OFFICIAL_CODEC, official_texts
from infer.engines.base import Generated
from infer.exchange import Read
from infer.predict import to_row

CODEC = OFFICIAL_CODEC


def write(records: Sequence[Record], rows: Sequence[Prediction], manifest: Manifest, out: Path) -> list[Path]:
    """See `infer.exchange.Exchange.write`; `out` is the file."""
    if out.is_dir():
        raise DataError(f"{out} is a folder", fix="name a file: the official form is one file of lines")
    texts = official_texts(records, rows, manifest.codec)
    lines = [json.dumps({"task_id": key, "prediction": text}, ensure_ascii=False) for key, text in texts.items()]
    write_atomic(out, ("\n".join(lines) + "\n").encode())
    return [out]


def read(source: Path, records: Sequence[Record], decode: Decode) -> Read:
    """See `infer.exchange.Exchange.read`; `source` is a file."""
    if not source.is_file():
        raise DataError(
            f"{source} is not a file", fix='the official form is one file of lines {"task_id": ..., "prediction": ...}'
        )
    texts = _texts(source)
    unknown = sorted(set(texts) - {record.id for record in records})
    missing = [record.id for record in records if record.id not in texts]
    if unknown or missing:
        raise DataError(
            f"{len(missing)} ids of the split are missing and {len(unknown)} are unknown, "
            f"first {(missing or unknown)[0]!r}",
            where=str(source),
            fix="check --data and --split",
        )
    return Read(rows=[to_row(record, Generated(text=texts[record.id], finish="stop"), decode) for record in records])


def _texts(source: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    # Bytes: as text, other line ends of Unicode would split too, and they may stand inside a prediction.
    for number, line in enumerate(source.read_bytes().splitlines(), start=1):
        where = f"{source} row {number}"
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
    return texts
