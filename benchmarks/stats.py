"""Counts of a prepared dataset, beside the published ones where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final

from benchmarks.dataset import load_info, read_records
from benchmarks.schema import SPLITS, Record
from benchmarks.sgmri import PUBLISHED_COUNTS

# (split, task) -> rows; ScintiGround-38K, 38,469 rows in all.
PUBLISHED_ROWS: Final = MappingProxyType(
    {
        ("train", "vqa"): 10726,
        ("train", "grounding"): 10068,
        ("train", "grounded_vqa"): 10068,
        ("val", "vqa"): 1340,
        ("val", "grounding"): 1256,
        ("val", "grounded_vqa"): 1257,
        ("test", "vqa"): 1305,
        ("test", "grounding"): 1225,
        ("test", "grounded_vqa"): 1224,
    }
)
# (split, task, label) -> rows. Not stated by the authors: the only integers that give all their decimals.
PUBLISHED_LABELS: Final = MappingProxyType(
    {
        ("test", "vqa", "yes"): 141,
        ("test", "vqa", "no"): 1164,
        ("test", "grounded_vqa", "abnormal"): 115,
        ("test", "grounded_vqa", "normal"): 1109,
    }
)
NONE = "-"


def count(records: Iterable[Record], stratum: str = "view_scope") -> Counter[tuple[str, str, str, str]]:
    """Counts records by (split, task, label, a stratum); what a record lacks is `-`."""
    return Counter(
        (record.split, record.task, record.target.label or NONE, record.strata.get(stratum, NONE)) for record in records
    )


def report(dataset: Path) -> list[str]:
    """Lines of the tables that `python -m benchmarks stats` prints.

    Raises:
        DataError: The folder is not a prepared dataset, or was changed.
    """
    info = load_info(dataset)
    stratum = _STRATA.get(info.benchmark, "view_scope")
    counts: Counter[tuple[str, str, str, str]] = Counter()
    groups = {}
    slices: dict[str, list[int]] = {}
    for split in (split for split in SPLITS if split in info.counts):
        records = list(read_records(dataset, split))
        counts.update(count(records, stratum))
        groups[split] = len({record.group for record in records})
        volumes = {record.group: len(record.images) for record in records if is_volume(record)}
        slices |= {split: sorted(volumes.values())} if volumes else {}
    rows = [[*key, f"{number:,}"] for key, number in sorted(counts.items(), key=lambda item: _order(item[0]))]
    totals = [[split, "all", NONE, NONE, f"{sum(info.counts[split].values()):,}"] for split in groups]
    lines = [f"{info.name} ({info.benchmark}, read by {info.reader}, content {info.content_hash[:12]})", ""]
    lines += table(["split", "task", "label", stratum.replace("_", " "), "records"], [*rows, *totals])
    lines += ["", "groups: " + ", ".join(f"{split} {number:,}" for split, number in groups.items())]
    for part, sizes in slices.items():
        lines.append(
            f"volumes of {part}: {len(sizes):,} with {sum(sizes):,} slices, {sizes[0]} to {sizes[-1]}, "
            f"median {median(sizes):g}"
        )
    if info.benchmark in _PUBLISHED:
        lines += ["", *_PUBLISHED[info.benchmark](counts)]
    return lines


def is_volume(record: Record) -> bool:
    """Whether a record asks about several numbered slices."""
    return len(record.images) > 1 and all(image.frame is not None for image in record.images)


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Aligns cells in columns; columns of numbers to the right."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numbers = [bool(rows) and all(cell.replace(",", "").isdecimal() for cell in column[1:]) for column in columns]

    def line(row: list[str]) -> str:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numbers, strict=True)
        ]
        return "  ".join(cells).rstrip()

    return [line(header), "  ".join("-" * width for width in widths), *(line(row) for row in rows)]


Counts = Counter[tuple[str, str, str, str]]


def _scintiground(counts: Counts) -> list[str]:
    """The published counts beside ours; a line that differs ends in `differs`."""
    by_task: Counter[tuple[str, str]] = Counter()
    by_label: Counter[tuple[str, str, str]] = Counter()
    for (split, task, label, _), number in counts.items():
        by_task[split, task] += number
        by_label[split, task, label] += number
    pairs: list[tuple[tuple[str, ...], int, int]] = [
        ((*key, "all"), by_task[key], published) for key, published in PUBLISHED_ROWS.items()
    ]
    pairs += [(key, by_label[key], published) for key, published in PUBLISHED_LABELS.items()]
    return [
        f"Published release (ScintiGround-38K): {_agree(pairs)}. Class counts of the test split",
        "are inferred from the published decimals.",
        "",
        *_beside(["split", "task", "label"], pairs),
    ]


def _sgmri(counts: Counts) -> list[str]:
    """The paper's Table 2 beside ours; our split `val` was taken from its training part."""
    ours: Counter[tuple[str, str, str]] = Counter()
    for (split, task, _, organ), number in counts.items():
        ours[organ, task.partition("_")[0], "test" if split == "test" else "train"] += number
    pairs = [(key, ours[key], published) for key, published in PUBLISHED_COUNTS.items()]
    total = ((NONE, "all", "all"), ours.total(), sum(PUBLISHED_COUNTS.values()))
    return [
        f"Published counts (SGMRI-VQA, Table 2; train with our split val): {_agree(pairs)}.",
        "",
        *_beside(["organ", "level", "split"], [*pairs, total]),
    ]


Pairs = Sequence[tuple[tuple[str, ...], int, int]]


def _agree(pairs: Pairs) -> str:
    return f"{sum(ours == published for _, ours, published in pairs)} of {len(pairs)} counts agree"


def _beside(header: list[str], pairs: Pairs) -> list[str]:
    rows = [
        [*key, f"{ours:,}", f"{published:,}", "" if ours == published else f"differs by {ours - published:+,}"]
        for key, ours, published in pairs
    ]
    return table([*header, "here", "published", ""], rows)


# The stratum that is told apart, and what is published.
_STRATA = {"sgmri": "organ"}
_PUBLISHED: dict[str, Callable[[Counts], list[str]]] = {"scintiground": _scintiground, "sgmri": _sgmri}


def _order(key: tuple[str, str, str, str]) -> tuple[int, str, str, str]:
    return SPLITS.index(key[0]) if key[0] in SPLITS else len(SPLITS), *key[1:]
