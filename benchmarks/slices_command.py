"""`python -m benchmarks slices fastmri|volume`: options, and what is said at the end."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks import slices_quirks, volumes
from benchmarks.slices import make_slices
from benchmarks.slices_report import DROPPED, summary
from benchmarks.volumes_rows import convert_volume

Said = tuple[int, list[str]]
_PIXEL_TOLERANCE = 0.01


def add_parsers(sub: argparse.ArgumentParser) -> None:
    """Adds the two commands; each sets `slices`, a function of the arguments that returns exit status and lines."""
    kinds = sub.add_subparsers(required=True, metavar="KIND")
    text = "fastMRI files and fastMRI+ tables -> images and volume metadata of SGMRI-VQA, as published"
    fastmri = kinds.add_parser(
        "fastmri",
        help=text,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"options of --set:\n\n{slices_quirks.Quirks.__doc__}",
    )
    fastmri.set_defaults(slices=_fastmri)
    fastmri.add_argument(
        "volumes", type=Path, metavar="VOLUMES", help="folder with .h5 files below multicoil_train, ..."
    )
    fastmri.add_argument("--annotations", type=Path, required=True, metavar="DIR", help="folder of brain.csv, knee.csv")
    fastmri.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    fastmri.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="processes")
    fastmri.add_argument(
        "--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help="knee_slice_offset=1, ..."
    )
    text = "one volume of your own (NIfTI, DICOM series, HDF5) -> PNG slices and a file of questions"
    volume = kinds.add_parser(
        "volume",
        help=text,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=volumes.__doc__,
    )
    volume.set_defaults(slices=_volume)
    volume.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a file, or a folder or files of one series"
    )
    volume.add_argument("--id", required=True, metavar="PSEUDONYM", help="begins file names and is the group")
    volume.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    volume.add_argument("--window", choices=volumes.VOLUME_WINDOWS, help="default by the kind of file, see below")
    volume.add_argument("--plane", choices=volumes.PLANES, default="native", help="see below (default: native)")
    volume.add_argument("--volume", type=int, metavar="N", help="which volume of a 4-D NIfTI file, from 1")
    volume.add_argument("--questions", type=Path, metavar="TABLE", help="questions, JSONL or CSV without images")


def _fastmri(arguments: argparse.Namespace) -> Said:
    quirks = slices_quirks.parse_quirks(arguments.set)
    report = make_slices(
        arguments.volumes, arguments.annotations, arguments.out, quirks=quirks, workers=arguments.workers
    )
    out = arguments.out
    lines = [
        *summary(report),
        f"images: {out / 'data'}",
        f"volume metadata: {out / 'data_processing'}",
        f"what was left out and why: {out / DROPPED}",
    ]
    if report.faults:
        return 1, [*lines, "next: mend or copy again the files named above, then the same command: it does only these"]
    return 0, [*lines, f"next: python -m benchmarks prepare sgmri RELEASE --image-root {out / 'data'} --out DATASET"]


def _volume(arguments: argparse.Namespace) -> Said:
    converted = convert_volume(
        arguments.paths,
        arguments.out,
        pseudonym=arguments.id,
        plane=arguments.plane,
        window=arguments.window,
        number=arguments.volume,
        questions=arguments.questions,
    )
    note = converted.note
    lines = [
        f"wrote {note['slices']} {'slice' if note['slices'] == 1 else 'slices'} of {note['width']}x{note['height']} pixels: {converted.images[0]} ...",
        f"plane: {note['plane']}, directions of slices, rows and columns: {note['directions'] or 'unknown'}",
        f"window: {note['window']}",
        "boxes are pixels of these slices",
    ]
    spacing = note["spacing_mm"]
    if spacing is not None and abs(spacing[1] - spacing[2]) > _PIXEL_TOLERANCE * spacing[1]:
        lines.append(f"pixels are not square: {spacing[2]:g} mm wide, {spacing[1]:g} mm high; they are left so")
    if converted.questions:
        number = f"{converted.questions} question{'' if converted.questions == 1 else 's'}"
        lines.append(f"wrote {converted.rows} with {number} about {arguments.id}")
    else:
        lines.append(
            f"wrote {converted.rows} with one row about {arguments.id}: fill in question and answer before the next command"
        )
    return 0, [*lines, f"next: python -m benchmarks prepare generic {converted.rows} --out DATASET"]
