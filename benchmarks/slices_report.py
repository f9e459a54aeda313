"""What became of every volume and every row: written to `dropped.json` and told at the end of `slices fastmri`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.dataset import write_atomic
from benchmarks.errors import SHOWN_FAULTS, DataError, fault_list
from benchmarks.fastmri_plus import ORGANS, Tables
from benchmarks.slices_metadata import Remark
from benchmarks.slices_quirks import Quirks
from benchmarks.slices_volume import Done
from benchmarks.stats import table

DROPPED = "dropped.json"
# (group, split) -> volumes and slices that the authors' logs name; their brain counts hold the one volume of 2 slices
# that the 10-slice filter takes away later. Source: sgmri.md, section 11.
PUBLISHED_VOLUMES: Final = MappingProxyType(
    {
        ("FLAIR", "train"): (340, 5392),
        ("FLAIR", "val"): (107, 1694),
        ("T1", "train"): (410, 6394),
        ("T1", "val"): (140, 2186),
        ("knee", "train"): (819, 29423),
        ("knee", "val"): (155, 5585),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A volume that is left out; `rows` is the number of table rows that go with it."""

    volume: str
    reason: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReport:
    """What `make_slices` did.

    Attributes:
        volumes: The volumes that are part of the result, in the tables' order of organs and by name.
        written: How many of them this run converted; the others were done before.
        metadata: Path below `data_processing` -> contents of the volume metadata files.
        dropped_volumes: Volumes that are left out.
        dropped_rows: Rows about `volumes` that are not in the metadata (of study-level rows: not on a slice).
        changed_rows: Rows that are in it with another box.
        faults: One per volume that could not be read; if there is any, the result is not whole.
    """

    volumes: tuple[Done, ...]
    written: int
    metadata: dict[str, dict[str, Any]]
    dropped_volumes: tuple[Dropped, ...]
    dropped_rows: tuple[Remark, ...]
    changed_rows: tuple[Remark, ...]
    faults: tuple[DataError, ...]


def write_report(out: Path, report: SliceReport, tables: Tables, quirks: Quirks) -> None:
    """Writes the metadata files and `dropped.json`; files of an earlier run that are not part of this one go."""
    for organ in ORGANS:
        for path in (out / "data_processing" / organ).glob(f"{organ}_*_volumes.json"):
            if f"{organ}/{path.name}" not in report.metadata:
                path.unlink()
    for name, contents in report.metadata.items():
        path = out / "data_processing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(contents, indent=2).encode())
    total = sum(map(len, tables.values()))
    with_volumes = sum(dropped.rows for dropped in report.dropped_volumes)
    contents = {
        "quirks": asdict(quirks),
        "counts": {
            "volumes": len(report.volumes),
            "slices": sum(done.slices for done in report.volumes),
            "table rows": total,
            "rows that are used": total - with_volumes - len(report.dropped_rows),
            "rows of volumes left out": with_volumes,
            "rows left out": _by_reason(report.dropped_rows),
            "rows changed": _by_reason(report.changed_rows),
            "volumes left out": _by_reason(report.dropped_volumes),
        },
        "volumes": [asdict(dropped) for dropped in report.dropped_volumes],
        "rows": [asdict(remark) for remark in report.dropped_rows],
        "changed": [asdict(remark) for remark in report.changed_rows],
        "faults": [{"message": fault.message, "where": fault.where, "do": fault.fix} for fault in report.faults],
    }
    write_atomic(out / DROPPED, json.dumps(contents, indent=1).encode())


def summary(report: SliceReport) -> list[str]:
    """Lines for the end of the command: what there is, beside the authors' counts, and what was left out."""
    volumes, slices = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for done in report.volumes:
        volumes[done.sequence or done.organ, done.split] += 1
        slices[done.sequence or done.organ, done.split] += done.slices
    rows = []
    for key, published in PUBLISHED_VOLUMES.items():
        ours = (volumes[key], slices[key])
        verdict = "agrees" if ours == published else "differs"
        rows.append([*key, *(f"{number:,}" for number in (*ours, *published)), verdict])
    lines = table(["", "split", "volumes", "slices", "authors' volumes", "authors' slices", ""], rows)
    lines += ["", f"{report.written:,} volumes converted now, {len(report.volumes) - report.written:,} done before"]
    for what, remarks in (
        ("volumes left out", report.dropped_volumes),
        ("rows left out", report.dropped_rows),
        ("rows changed", report.changed_rows),
    ):
        lines += [f"{what}: {number:,} ({reason})" for reason, number in _by_reason(remarks).items()]
    if report.faults:
        lines += ["", fault_list(report.faults, SHOWN_FAULTS)]
    return lines


def _by_reason(remarks: Iterable[Remark | Dropped]) -> dict[str, int]:
    return dict(sorted(Counter(remark.reason for remark in remarks).items()))
