"""Command line: `python -m benchmarks ls|prepare|validate|show|stats|dicom|slices|phantom|phantom-mri`.

python -m benchmarks ls
python -m benchmarks prepare scintiground RELEASE --out data/scintiground --image-root BS80K
python -m benchmarks prepare sgmri RELEASE --volumes FASTMRI --annotations FASTMRI_PLUS --out data/sgmri
python -m benchmarks prepare generic questions.csv --out data/mine
python -m benchmarks validate data/mine
python -m benchmarks show data/mine ID
python -m benchmarks stats data/mine
python -m benchmarks stats fastmri_plus Annotations
python -m benchmarks dicom scan.dcm --out scan --id P001 --view ANT
python -m benchmarks slices fastmri FASTMRI --annotations Annotations --out sgmri
python -m benchmarks slices volume brain.nii.gz --id P001 --out slices
python -m benchmarks phantom release --preset full
python -m benchmarks phantom-mri sources --preset full
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import fastmri_plus_stats, slices_command
from benchmarks.dicom import WINDOWS
from benchmarks.dicom_rows import convert
from benchmarks.errors import DataError, fault_list
from benchmarks.phantom_mri_presets import PRESETS as MRI_PRESETS
from benchmarks.phantom_mri_presets import configure as configure_mri
from benchmarks.phantom_mri_release import write_sources
from benchmarks.phantom_presets import PRESETS, configure
from benchmarks.phantom_release import write_release
from benchmarks.prepare import DROPPED, prepare
from benchmarks.prepare_volumes import slice_first
from benchmarks.registry import TABLE
from benchmarks.schema import SPLITS
from benchmarks.show import describe, draw, draw_canvas, find_prediction, find_record, read_plan
from benchmarks.stats import report
from benchmarks.validate import validate_dataset
from recipes.errors import run_command

TABLES = "fastmri_plus"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status (1 if `validate` finds faults)."""
    parser = _parser()
    # argparse does not find positional arguments that follow an option.
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command is _stats and arguments.tables not in (None, TABLES):
        rest = [str(arguments.dataset), *rest]
    if rest and not (
        arguments.command in (_phantom, _phantom_mri) and all("=" in item and item[0] != "-" for item in rest)
    ):
        parser.error(f"unknown arguments: {' '.join(rest)}")
    arguments.settings = [*getattr(arguments, "settings", []), *rest]
    command: Callable[[argparse.Namespace], int] = arguments.command
    return command(arguments)


def _ls(_: argparse.Namespace) -> int:
    for entry in TABLE:
        print(entry.name)
        for title, text in (("reads", entry.reads), ("get", entry.get), ("put", entry.put)):
            print(textwrap.fill(text, 110, initial_indent=f"  {title + ':':7}", subsequent_indent=" " * 9))
    print("next: python -m benchmarks prepare NAME RELEASE --out DATASET")
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    settings, image_root = _pairs(arguments.set), arguments.image_root
    if (arguments.volumes is None) != (arguments.annotations is None):
        raise DataError(
            "--volumes and --annotations go together", fix="give both, or --image-root with slices made before"
        )
    if arguments.volumes is not None:
        if arguments.name != "sgmri" or image_root is not None:
            raise DataError("--volumes makes the slices of sgmri", fix="leave it out, or --image-root")
        sliced = slice_first(
            arguments.release,
            arguments.volumes,
            arguments.annotations,
            arguments.out,
            settings=settings,
            workers=arguments.workers,
        )
        settings, image_root = sliced.settings, sliced.image_root
        print("\n".join(sliced.lines))
    prepared = prepare(
        arguments.name,
        arguments.release,
        arguments.out,
        image_root=image_root,
        image_check=arguments.image_check,
        benchmark=arguments.benchmark,
        settings=settings,
    )
    info = prepared.info
    _warn(prepared.warnings)
    for split in (split for split in SPLITS if split in info.counts):
        tasks = info.counts[split]
        print(f"{split}: {sum(tasks.values()):,} records ({', '.join(f'{task} {n:,}' for task, n in tasks.items())})")
    for (kind, reason), number in sorted(prepared.dropped.items()):
        print(f"left out: {number:,} {kind}{'' if number == 1 else 's'}: {reason}")
    if prepared.dropped:
        print(f"each of them: {arguments.out / DROPPED}")
    if not arguments.image_check:
        print("images were not checked: python -m benchmarks validate does it later")
    print(f"prepared {arguments.out}  content {info.content_hash[:12]}")
    print(f"next: python -m benchmarks stats {arguments.out}")
    return 0


def _pairs(items: Sequence[str]) -> dict[str, str]:
    """`name=value` items as a mapping."""
    pairs = [item.partition("=") for item in items]
    wrong = next((name for name, sign, _ in pairs if not sign), None)
    if wrong is not None:
        raise DataError(f"{wrong!r} is not name=value", where="--set", fix="for example --set knee_slice_offset=1")
    return {name: value for name, _, value in pairs}


def _validate(arguments: argparse.Namespace) -> int:
    number, findings = validate_dataset(arguments.dataset)
    _warn(findings.warnings)
    if findings.faults:
        print(fault_list(findings.faults))
        return 1
    print(f"{arguments.dataset}: {number:,} records and their images are in order")
    print(f"next: python -m benchmarks stats {arguments.dataset}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    record = find_record(arguments.dataset, arguments.id)
    prediction = find_prediction(arguments.predictions, arguments.id) if arguments.predictions else None
    out = arguments.out or Path(re.sub(r"[^A-Za-z0-9._-]+", "_", f"{record.id}.png"))
    if out.suffix.lower() != ".png":
        raise DataError(f"--out {out} is not a .png file", fix="name it something.png")
    lines = describe(record, prediction)
    if arguments.canvas is None:
        picture = draw(arguments.dataset, record, prediction)
    else:
        picture, line = draw_canvas(
            arguments.dataset, record, read_plan(arguments.canvas[0], arguments.canvas[1:]), prediction
        )
        lines.append(line)
    try:
        picture.save(out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}", fix="choose another --out") from error
    print("\n".join(lines))
    print(f"drawn: {out}")
    print("next: open the picture")
    return 0


def _stats(arguments: argparse.Namespace) -> int:
    if arguments.tables is not None:
        print("\n".join(fastmri_plus_stats.report(arguments.dataset)))
        print(f"tables: {arguments.dataset}")
        print(f"next: python -m benchmarks slices fastmri VOLUMES --annotations {arguments.dataset} --out FOLDER")
        return 0
    print("\n".join(report(arguments.dataset)))
    print(f"dataset: {arguments.dataset}")
    print(f"next: python -m recipes plan RECIPE data.dataset={arguments.dataset}")
    return 0


def _dicom(arguments: argparse.Namespace) -> int:
    converted = convert(
        arguments.files,
        arguments.out,
        patient=arguments.id,
        views=arguments.view,
        window=arguments.window,
        mirror=arguments.mirror,
        questions=arguments.questions,
    )
    for path in converted.images:
        print(f"wrote {path}")
    print(f"windows: {', '.join(converted.windows)}")
    if arguments.mirror:
        print("stand-in: the second view is the first one mirrored, not a second picture of the patient")
    if converted.questions:
        print(f"wrote {converted.rows} with {converted.questions} questions")
    else:
        print(
            f"wrote {converted.rows} with one row: fill in question and answer (label, boxes) before the next command"
        )
    print(f"next: python -m benchmarks prepare generic {converted.rows} --out DATASET")
    print("      add --benchmark scintiground if the questions are of its kind: its rules and its scorer then apply")
    return 0


def _slices(arguments: argparse.Namespace) -> int:
    status, lines = arguments.slices(arguments)
    print("\n".join(lines))
    return int(status)


def _phantom(arguments: argparse.Namespace) -> int:
    config = configure(arguments.preset, arguments.settings)
    write_release(config, arguments.out)
    print(f"wrote {arguments.out}: {config.train} + {config.val} + {config.test} patients, seed {config.seed}")
    print(f"next: python -m benchmarks prepare scintiground {arguments.out} --out DATASET")
    return 0


def _phantom_mri(arguments: argparse.Namespace) -> int:
    config, out = configure_mri(arguments.preset, arguments.settings), arguments.out
    write_sources(config, out)
    print(f"wrote {out}: {config.train} + {config.val} volumes of brain and of knee, seed {config.seed}")
    if not config.knee_fault and not config.volume_boxes:
        print(
            "knee questions name the true slice, yet preparation makes the boxes of knee volumes one frame early, as "
            "published: volume_boxes=true, or knee_fault=true and --set knee_slice_offset=1, bring them together"
        )
    print(
        f"next: python -m benchmarks prepare sgmri {out}/release --volumes {out}/hdf5 --annotations {out}/annotations "
        f"--out DATASET{' --set knee_slice_offset=1' if config.knee_fault else ''}"
    )
    return 0


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Prepare, check and look at data.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        return sub

    add("ls", _ls, "list the benchmarks: what is read, where the files come from and where they go")
    _add_prepare(add("prepare", _prepare, "turn a release into a prepared dataset"))
    sub = add("validate", _validate, "check a prepared dataset and its images; lists every fault, exits 1 if any")
    sub.add_argument("dataset", type=Path)
    sub = add("show", _show, "draw one record: all views with target boxes, question and answer")
    sub.add_argument("dataset", type=Path)
    sub.add_argument("id")
    sub.add_argument("--out", type=Path, metavar="PNG", help="picture to write (default: ID.png here)")
    sub.add_argument("--predictions", type=Path, metavar="FOLDER", help="draw this prediction folder's boxes too")
    sub.add_argument(
        "--canvas",
        nargs="+",
        metavar=("RECIPE", "canvas.key=value"),
        help="draw the one picture that the recipe's model sees, where it sees one; changes as in canvas.resize=pad",
    )
    sub = add("stats", _stats, "count records by split, task, label and view scope, beside published counts")
    sub.add_argument("tables", nargs="?", metavar=TABLES, help="count the fastMRI+ tables in the folder instead")
    sub.add_argument("dataset", type=Path, metavar="DATASET")
    _add_dicom(add("dicom", _dicom, "turn DICOM files into PNG images and a file of questions"))
    slices_command.add_parsers(add("slices", _slices, "turn volumes into PNG slices: fastMRI's, or your own"))
    mri = "write synthetic volumes, annotations and questions in the forms of SGMRI-VQA"
    for name, command, text, presets in (
        ("phantom", _phantom, "write a synthetic release in the official ScintiGround form", PRESETS),
        ("phantom-mri", _phantom_mri, mri, MRI_PRESETS),
    ):
        sub = add(name, command, text)
        sub.add_argument("out", type=Path)
        sub.add_argument("--preset", default="full", metavar="NAME", help=f"{', '.join(presets)} (default: full)")
        sub.add_argument("settings", nargs="*", metavar="key=value", help="changes to the preset: train=50")
    return parser


def _add_prepare(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("name", metavar="NAME", help="which reader, see `ls`")
    sub.add_argument("release", type=Path, metavar="RELEASE", help="folder of the release, or the file of questions")
    sub.add_argument("--out", type=Path, required=True, metavar="DATASET", help="folder to write")
    sub.add_argument("--image-root", type=Path, metavar="DIR", help="folder of the images, if not in the release")
    sub.add_argument("--no-image-check", dest="image_check", action="store_false", help="do not open the images")
    sub.add_argument("--volumes", type=Path, metavar="DIR", help="with `sgmri`: fastMRI files, to make the slices from")
    sub.add_argument("--annotations", type=Path, metavar="DIR", help="with --volumes: folder of brain.csv and knee.csv")
    sub.add_argument("--workers", type=int, default=2, metavar="N", help="with --volumes: processes (default: 2)")
    sub.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="options of the reader, such as knee_slice_offset=1",
    )
    sub.add_argument("--benchmark", metavar="NAME", help="with `generic`: apply this benchmark's rules and scorer")


def _add_dicom(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("files", type=Path, nargs="+", metavar="FILE.dcm", help="files of one patient")
    sub.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    sub.add_argument("--id", required=True, metavar="PSEUDONYM", help="begins file names and is the group")
    sub.add_argument("--view", action="append", default=[], metavar="VIEW", help="ANT or POST; once per image")
    sub.add_argument("--window", choices=WINDOWS, help="default: nm for nuclear medicine, else tags")
    sub.add_argument("--mirror", action="store_true", help="add the one image mirrored as the opposite view")
    sub.add_argument("--questions", type=Path, metavar="TABLE", help="questions to ask, JSONL or CSV without images")


if __name__ == "__main__":
    sys.exit(run_command(main))
