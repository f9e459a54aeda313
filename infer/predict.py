"""Sharded, resumable prediction.

The records are cut into fixed blocks; a block is one call of the engine, whatever the number of
processes, so the finished file, in dataset order, has the same bytes however the work was split or interrupted. Each
process appends finished rows to a part file of its own and flushes it; the last step merges the parts.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tqdm import tqdm

from benchmarks.dataset import write_atomic
from benchmarks.errors import DataError
from benchmarks.locking import locked
from benchmarks.predictions import MANIFEST, PREDICTIONS, Manifest, Prediction, Tokens, encode_prediction
from benchmarks.schema import Record
from benchmarks.threads import as_finished
from collators.codecs.base import Decode, Invalid
from infer.engines.base import Engine, Generated, LooksAhead
from models.processes import process_state
from recipes.compare import changes

PARTS = "parts"
SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One prediction run.

    Attributes:
        records: In dataset order.
        decode: Reads a model's text.
        out: Prediction folder.
        blocks: Positions of the records of each engine call; see `infer.blocks`.
        settings: Everything that decides the rows; resuming refuses any difference.
        lockstep: Every process calls the engine equally often, because they hold the weights together.
        threads: Blocks at a time, for engines that wait for a server.
        retry_errors: Predict the records again whose rows hold an error, also of a finished folder.
    """

    records: Sequence[Record]
    decode: Decode
    out: Path
    blocks: Sequence[Sequence[int]]
    settings: dict[str, Any]
    lockstep: bool = False
    threads: int = 1
    retry_errors: bool = False


def predict(job: Job, make_engine: Callable[[], Engine], manifest: Callable[[float, int], Manifest]) -> Path:
    """Predicts what is missing and writes the finished folder.

    Args:
        job: What to do.
        make_engine: Loads the model; not called when every row is there already.
        manifest: Makes the manifest from wall seconds and the number of tokens in the rows written now.

    Returns:
        The prediction folder.

    Raises:
        DataError: The folder holds other predictions, is in use, or cannot be written.
    """
    state = process_state()
    with _writable(job.out):
        job.out.mkdir(parents=True, exist_ok=True)
    with locked(job.out, needed=state.is_main_process):
        if state.is_main_process:
            _claim(job.out, job.settings)
            if job.retry_errors:
                _drop_errors(job.out)
        state.wait_for_everyone()
        if (job.out / MANIFEST).is_file():
            return job.out
        started = time.monotonic()
        done = _done(job.out)
        state.wait_for_everyone()
        missing = [
            block for block in range(len(job.blocks)) if any(record.id not in done for record in _block(job, block))
        ]
        # Dealt out after the finished ones are left out, so that no process waits for another's backlog.
        blocks = missing[state.process_index :: state.num_processes]
        idle = job.lockstep and len(blocks) * state.num_processes < len(missing)
        if blocks or idle:
            engine = make_engine()
            _work(job, engine, blocks, done, rank=state.process_index, quiet=not state.is_main_process)
            if idle:
                engine.generate(_block(job, missing[0]))  # thrown away; the others cannot do without this process
        state.wait_for_everyone()
        if state.is_main_process:
            tokens = _merge(job, done)
            facts = manifest(time.monotonic() - started, tokens)
            write_atomic(job.out / MANIFEST, msgspec.json.format(msgspec.json.encode(facts), indent=1))
            shutil.rmtree(job.out / PARTS)
        state.wait_for_everyone()
    return job.out


def _block(job: Job, number: int) -> Sequence[Record]:
    return [job.records[position] for position in job.blocks[number]]


def _work(job: Job, engine: Engine, blocks: list[int], done: set[str], *, rank: int, quiet: bool) -> None:
    """Generates the blocks and appends their missing rows."""
    path = job.out / PARTS / f"part-{rank:05d}.jsonl"
    if isinstance(engine, LooksAhead):
        engine.expect([_block(job, number) for number in blocks])
    with _writable(path):
        _cut_torn_line(path)
        with path.open("ab") as part, tqdm(total=len(blocks), desc="predicting", unit="block", disable=quiet) as bar:
            found = as_finished(lambda number: engine.generate(_block(job, number)), blocks, threads=job.threads)
            for number, results in found:
                for record, generated in zip(_block(job, number), results, strict=True):
                    if record.id not in done:
                        part.write(encode_prediction(to_row(record, generated, job.decode)) + b"\n")
                        part.flush()
                bar.update()


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"predictions cannot be written: {error.strerror}",
            where=str(path),
            fix="free space or mend permissions, then run the same command: finished rows are kept",
        ) from error


def to_row(record: Record, generated: Generated, decode: Decode) -> Prediction:
    """Decodes a generated text into a prediction row; a text cut by the limit says so in its reason."""
    if generated.error is not None or generated.text is None:
        return Prediction(id=record.id, error=generated.error or "the engine returned no text")
    decoded = decode(generated.text, record.ask())
    answer, invalid = (None, decoded.reason) if isinstance(decoded, Invalid) else (decoded, None)
    if invalid is not None and generated.finish == "length":
        invalid = f"truncated: {invalid}"
    return Prediction(
        id=record.id,
        text=generated.text,
        answer=answer,
        invalid=invalid,
        finish=generated.finish,
        tokens=_tokens(generated),
        label_scores=generated.label_scores,
        label_scores_at=generated.label_scores_at,
    )


def _tokens(generated: Generated) -> Tokens | None:
    if generated.prompt_tokens is None or generated.new_tokens is None:
        return None
    return Tokens(prompt=generated.prompt_tokens, new=generated.new_tokens)


def _claim(out: Path, settings: dict[str, Any]) -> None:
    """Checks that the folder is new or holds the same run."""
    path, new = out / SETTINGS, True
    if path.is_file():
        stored = json.loads(path.read_text())
        current = json.loads(json.dumps(settings))
        changed = changes(stored, current)
        new = bool(changed)
        # A run that stopped before its first row, as for want of a key, binds nobody.
        if changed and ((out / MANIFEST).is_file() or any(True for _ in _rows(out))):
            raise DataError(
                f"{out} holds predictions made with other settings: {'; '.join(changed)}",
                fix="give another --out, or the settings of that run to continue it",
            )
    # Hidden files are the lock, and what a kill left of a file that was being written.
    elif any(not item.name.startswith(".") for item in out.iterdir()):
        raise DataError(f"{out} is not empty and not a prediction folder", fix="give another --out")
    if new:
        write_atomic(path, json.dumps(settings, indent=1, sort_keys=True).encode())
    if not (out / MANIFEST).is_file():
        (out / PARTS).mkdir(exist_ok=True)


def _rows(out: Path) -> Iterator[tuple[Prediction, bytes]]:
    """Rows and lines of all parts; a last line without its newline was cut by a kill and is left out."""
    for path in sorted((out / PARTS).glob("part-*.jsonl")):
        yield from _rows_of(path)


def _rows_of(path: Path) -> Iterator[tuple[Prediction, bytes]]:
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            yield msgspec.json.decode(line, type=Prediction), line
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise DataError(
                f"not a prediction: {error}", where=f"{path} row {number}", fix="delete this row and run again"
            ) from error


def _drop_errors(out: Path) -> None:
    """Takes the rows that hold an error out of a folder, which is then unfinished again; leaves one without any alone."""
    finished = (out / MANIFEST).is_file()
    paths = [out / PREDICTIONS] if finished else sorted((out / PARTS).glob("part-*.jsonl"))
    for path in paths:
        rows = list(_rows_of(path))
        kept = [line + b"\n" for row, line in rows if row.error is None]
        if len(kept) == len(rows):
            continue
        with _writable(path):
            if finished:
                # The manifest goes last: until then the folder is the finished one. Parts that a kill left are older.
                shutil.rmtree(out / PARTS, ignore_errors=True)
                (out / PARTS).mkdir()
                write_atomic(out / PARTS / "part-00000.jsonl", b"".join(kept))
                (out / MANIFEST).unlink()
            else:
                write_atomic(path, b"".join(kept))


def _done(out: Path) -> set[str]:
    return {row.id for row, _ in _rows(out)}


def _cut_torn_line(path: Path) -> None:
    if path.is_file():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            write_atomic(path, data[:whole])


def _merge(job: Job, done: set[str]) -> int:
    """Writes `predictions.jsonl` in dataset order from the parts; returns the new tokens of the rows not in `done`."""
    lines: dict[str, bytes] = {}
    tokens: dict[str, int] = {}
    for row, line in _rows(job.out):
        lines[row.id] = line
        if row.tokens is not None and row.id not in done:
            tokens[row.id] = row.tokens.new
    missing = [record.id for record in job.records if record.id not in lines]
    if missing:
        raise DataError(
            f"{len(missing)} rows are missing, first {missing[0]}", where=str(job.out), fix="run the same command again"
        )
    data = b"".join(lines[record.id] + b"\n" for record in job.records)
    with _writable(job.out / PREDICTIONS):
        write_atomic(job.out / PREDICTIONS, data)
    return sum(tokens.values())
