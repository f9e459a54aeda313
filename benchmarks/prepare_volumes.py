"""`prepare sgmri --volumes --annotations`: the slices first, into the dataset's own folder."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.errors import SHOWN_FAULTS, DataError, fault_list
from benchmarks.readers.sgmri import Options, check_release
from benchmarks.slices import make_slices
from benchmarks.slices_quirks import Quirks, parse_quirks
from benchmarks.slices_report import summary

FOLDER = "slices"
# Options that concern questions and slices alike.
_SHARED = ("knee_slice_offset",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliced:
    """What preparation goes on with.

    Attributes:
        image_root: Folder of the slices.
        settings: Options that are left for the reader.
        lines: What was made and left out.
    """

    image_root: Path
    settings: dict[str, str]
    lines: list[str]


def slice_first(
    release: Path, volumes: Path, annotations: Path, out: Path, *, settings: Mapping[str, str], workers: int
) -> Sliced:
    """Makes the slices of fastMRI volumes that are not there yet, in `out/slices`.

    Args:
        release: Folder of the questions, looked at before the slices are made.
        volumes: Folder with fastMRI files.
        annotations: Folder with `brain.csv` and `knee.csv`.
        out: Folder of the dataset.
        settings: Options of slices and of the reader, by name as text.
        workers: Number of processes.

    Raises:
        DataError: As `make_slices` and `check_release`; also where a file could not be read, unless questions about
            volumes without slices are to be left out.
    """
    quirks = [field.name for field in fields(Quirks)]
    known = list(dict.fromkeys([*Options.__struct_fields__, *quirks]))
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise DataError(
                f"unknown option {name!r}",
                where="--set",
                fix=(f"did you mean {near[0]}? " if near else "") + f"the options are {', '.join(known)}",
            )
    left = {name: value for name, value in settings.items() if name in _SHARED or name not in quirks}
    check_release(release, left)
    chosen = parse_quirks([f"{name}={value}" for name, value in settings.items() if name in quirks])
    report = make_slices(volumes, annotations, out / FOLDER, quirks=chosen, workers=workers)
    if report.faults and settings.get("missing_volumes") != "drop":
        raise DataError(
            f"volumes cannot be read:\n{fault_list(report.faults, SHOWN_FAULTS)}",
            where=str(volumes),
            fix="mend or copy again these files and run the same command: slices that are done stay; or leave questions "
            "about them out with --set missing_volumes=drop",
        )
    return Sliced(image_root=out / FOLDER / "data", settings=left, lines=summary(report))
