"""Counts of the fastMRI+ tables, beside the totals of the SGMRI-VQA paper (arXiv 2604.15808)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.dataset import sha256_file
from benchmarks.fastmri_plus import ORGANS, PUBLISHED_TABLES, Annotation, duplicates, read_tables
from benchmarks.stats import table

Counts = dict[str, int]
# The paper's totals. It takes every row with four box fields, whatever their sense, and all splits.
PUBLISHED_TOTALS: Final = MappingProxyType(
    {"rows with a box": 23724, "slices with a box": 13202, "files with any row": 1970}
)
# The square that the authors' code takes all brain pictures for.
ASSUMED_BRAIN_SIDE = 256


def count(rows: Iterable[Annotation]) -> Counts:
    """Counts one table, or two as one; the names are those that `python -m benchmarks stats fastmri_plus` prints."""
    rows = list(rows)
    boxed = [(row, row.box) for row in rows if row.box is not None]
    slices = Counter((row.volume, row.index) for row, _ in boxed)
    files = {row.volume for row in rows}
    with_box = Counter(row.volume for row, _ in boxed)
    beyond = [row for row, (x, y, w, h) in boxed if max(x + w, y + h) > ASSUMED_BRAIN_SIDE]
    return {
        "rows": len(rows),
        "study-level rows": sum(row.study_level for row in rows),
        "rows with a box": len(boxed),
        "slices with a box": len(slices),
        "files with any row": len(files),
        "files with a box": len(with_box),
        "files with study-level rows only": len(files - set(with_box)),
        "labels": len({row.label for row in rows}),
        "labels of boxes": len({row.label for row, _ in boxed}),
        "highest slice (from 0)": max((row.index for row in rows), default=0),
        "most boxes on a slice": max(slices.values(), default=0),
        "most boxes in a file": max(with_box.values(), default=0),
        "boxes without area": sum(row.empty for row in rows),
        "boxes that begin at -1": sum(row.outside for row in rows),
        "rows that repeat an earlier one": len(list(duplicates(rows))),
        "boxes beyond 256 pixels": len(beyond),
        "files with boxes beyond 256 pixels": len({row.volume for row in beyond}),
        "boxes on slice 0": sum(row.index == 0 for row, _ in boxed),
        "slices 0 with a box": sum(index == 0 for _, index in slices),
    }


def report(folder: Path) -> list[str]:
    """Lines of the table that `python -m benchmarks stats fastmri_plus` prints.

    Raises:
        DataError: A table is missing or has faults.
    """
    tables = read_tables(folder)
    brain, knee = count(tables["brain"]), count(tables["knee"])
    both = count([*tables["brain"], *tables["knee"]])
    rows = []
    for name, total in both.items():
        published = PUBLISHED_TOTALS.get(name)
        rows.append(
            [
                name,
                *(f"{number:,}" for number in (brain[name], knee[name], total)),
                "" if published is None else f"{published:,}",
                "" if published is None else _verdict(total, published),
            ]
        )
    same = {organ: sha256_file(folder / f"{organ}.csv") == PUBLISHED_TABLES[organ] for organ in ORGANS}
    return [
        *(f"{organ}.csv: {'' if same[organ] else 'not '}the table of commit 67ed9a6" for organ in ORGANS),
        "",
        *table(["fastMRI+", "brain", "knee", "both", "SGMRI-VQA", ""], rows),
        "",
        "SGMRI-VQA: the paper's totals. Its volumes leave out one brain volume of fewer than 10 slices.",
    ]


def _verdict(ours: int, published: int) -> str:
    return "agrees" if ours == published else f"differs by {ours - published:+,}"
