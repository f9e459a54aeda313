"""fastMRI files and fastMRI+ tables -> the image tree and the volume metadata of SGMRI-VQA.

    OUT/data/{train,val}_labeled_raw_by_modality/{FLAIR,T1}/VOLUME/VOLUME_slice_NNN.png
    OUT/data/knee_{train,val}_labeled_raw/VOLUME/VOLUME_slice_NNN.png
    OUT/data_processing/{brain,knee}/{brain,knee}_{train,val}_volumes.json
    OUT/dropped.json        every volume and row that is left out, with the reason
    OUT/slices/VOLUME.json  one per volume that is done

A volume is taken if a table has a row about it and a folder names its split. The archives are large, so they may come one
after the other: volumes that were done before count although their files are gone. A run may be killed at any moment,
the same command continues it and ends with the same bytes; so does any number of processes. Files that cannot be
read are listed, the rest goes on.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from benchmarks.errors import DataError
from benchmarks.fastmri import find_volumes, require_h5py, sequence_of, split_of
from benchmarks.fastmri_plus import Annotation, Organ, Tables, by_volume, read_tables
from benchmarks.locking import locked
from benchmarks.slices_metadata import Entry, metadata_files, volume_entry
from benchmarks.slices_quirks import Quirks
from benchmarks.slices_report import Dropped, SliceReport, write_report
from benchmarks.slices_volume import STATES, Done, Task, convert_volume, forget, in_order, is_done, read_states, sweep

NOT_ANNOTATED = "no row in the tables"
TEST_SPLIT = "test split: the benchmark has none of it"
NO_SEQUENCE = "neither FLAIR nor T1 by its name"
TOO_FEW = "fewer slices than brain_min_slices"
NOT_HERE = "its file is not here and its slices are not done"
FAULTY = "its file has a fault"
Rows = dict[Organ, dict[str, list[Annotation]]]


def make_slices(volumes: Path, annotations: Path, out: Path, *, quirks: Quirks, workers: int) -> SliceReport:
    """Converts what is not done yet, then writes the metadata of all that is.

    Args:
        volumes: Folder with fastMRI files anywhere below it, in folders whose names say the split.
        annotations: Folder with `brain.csv` and `knee.csv`.
        out: Folder to write to.
        quirks: As published, or otherwise.
        workers: Number of processes.

    Raises:
        DataError: The folders or tables cannot be used, nothing was found, another process writes `out`, or writing
            failed. Files with faults do not raise: see `SliceReport.faults`.
    """
    if workers < 1:
        raise DataError(f"--workers {workers}: at least one process is needed", fix="leave it out")
    tables = read_tables(annotations)
    if not volumes.is_dir():
        raise DataError(f"{volumes} is not a folder", fix="give the folder that holds the fastMRI files")
    try:
        with locked(out, needed=True):
            sweep(out)
            (out / STATES).mkdir(exist_ok=True)
            return _make(volumes, tables, out, quirks, workers)
    except OSError as error:
        raise DataError(
            f"{error.strerror}", where=str(error.filename or out), fix="check space and permissions, then run again"
        ) from error


def _make(volumes: Path, tables: Tables, out: Path, quirks: Quirks, workers: int) -> SliceReport:
    rows = {organ: by_volume(table) for organ, table in tables.items()}
    survey = _survey(volumes, rows, quirks)
    states = read_states(out)
    pending = []
    for task in survey.tasks:
        if not is_done(out, task, states.get(task.volume)):
            pending.append(task)
            if task.volume in states:
                forget(out, states.pop(task.volume))
    if pending:
        require_h5py()
    faults = survey.faults
    written = 0
    for task, result in _convert(out, pending, workers):
        if isinstance(result, Done):
            states[task.volume] = result
            written += bool(result.png_bytes)
        else:
            faults[task.volume] = result
    if not states and not faults:
        raise DataError(
            "no volume with a row in the tables was found",
            where=str(volumes),
            fix="it must hold files such as multicoil_train/file1000001.h5, in any depth",
        )
    report = _report(out, rows, states, survey, quirks, written)
    write_report(out, report, tables, quirks)
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    """What lies under VOLUMES: volumes to convert, volumes that are no part of the benchmark, faults by volume."""

    tasks: list[Task]
    dropped: dict[str, str]
    faults: dict[str, DataError]


def _survey(volumes: Path, rows: Rows, quirks: Quirks) -> _Survey:
    survey = _Survey(tasks=[], dropped={}, faults={})
    paths: dict[str, list[Path]] = {}
    for path in find_volumes(volumes):
        paths.setdefault(path.stem, []).append(path)
    for volume, places in sorted(paths.items()):
        organ = next((organ for organ, table in rows.items() if volume in table), None)
        split = split_of(places[0], volumes)
        sequence = sequence_of(volume) if organ == "brain" else None
        if organ is None:
            survey.dropped[volume] = NOT_ANNOTATED
        elif len(places) > 1:
            survey.faults[volume] = DataError(
                f"{volume} is there {len(places)} times",
                where=", ".join(map(str, places)),
                fix="give a folder that holds it once",
            )
        elif split == "test":
            survey.dropped[volume] = TEST_SPLIT
        elif organ == "brain" and sequence is None:
            survey.dropped[volume] = NO_SEQUENCE
        elif split is None:
            survey.faults[volume] = DataError(
                "no folder says which split the file belongs to, or one names two",
                where=str(places[0]),
                fix="keep the folders of the archives, such as multicoil_train and multicoil_val",
            )
        else:
            least = quirks.brain_min_slices if organ == "brain" else 1
            survey.tasks.append(
                Task(volume=volume, path=places[0], organ=organ, split=split, sequence=sequence, least=least)
            )
    return survey


def _convert(out: Path, tasks: list[Task], workers: int) -> Iterator[tuple[Task, Done | DataError]]:
    """Results in any order."""
    progress = tqdm(total=len(tasks), desc="volumes to slices", unit="volume", disable=not tasks)
    with progress:
        if workers == 1 or len(tasks) < 2:
            for task in tasks:
                yield task, convert_volume(out, task)
                progress.update()
            return
        # A fresh interpreter: forked copies of a process with threads may hang, and would hold the lock of `out`.
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(workers, context, _leave_with_parent) as pool:
            futures = {pool.submit(convert_volume, out, task): task for task in tasks}
            try:
                for future in concurrent.futures.as_completed(futures):
                    yield futures[future], future.result()
                    progress.update()
            except BrokenProcessPool as error:
                raise DataError(
                    "a process ended unexpectedly, perhaps for want of memory",
                    fix="the same command continues; --workers 1 needs the least memory",
                ) from error
            finally:
                pool.shutdown(cancel_futures=True)


def _report(
    out: Path, rows: Rows, states: dict[str, Done], survey: _Survey, quirks: Quirks, written: int
) -> SliceReport:
    """Sorts volumes and rows into what is part of the result and what is not."""
    left_out = dict(survey.dropped) | dict.fromkeys(survey.faults, FAULTY)
    taken: list[tuple[Done, Entry]] = []
    for organ, table in rows.items():
        for volume, about in table.items():
            state = states.get(volume)
            if volume in left_out:
                continue
            if state is not None and not quirks.enough(organ, state.slices):
                left_out[volume] = TOO_FEW
            elif state is None or not state.png_bytes or not in_order(out, state):
                left_out[volume] = NOT_HERE
            else:
                taken.append((state, volume_entry(state, about, quirks)))
    number = {volume: len(about) for table in rows.values() for volume, about in table.items()}
    return SliceReport(
        volumes=tuple(done for done, _ in taken),
        written=written,
        metadata=metadata_files((done, entry.value) for done, entry in taken),
        dropped_volumes=tuple(
            Dropped(volume=volume, reason=reason, rows=number.get(volume, 0))
            for volume, reason in sorted(left_out.items())
        ),
        dropped_rows=tuple(remark for _, entry in taken for remark in entry.dropped),
        changed_rows=tuple(remark for _, entry in taken for remark in entry.changed),
        faults=tuple(fault for _, fault in sorted(survey.faults.items())),
    )


def _leave_with_parent() -> None:
    """Ends this process as soon as its parent is gone: a killed run must leave nobody behind who writes.

    An interruption from the keyboard is left to the parent, so that the volume at hand becomes whole.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
