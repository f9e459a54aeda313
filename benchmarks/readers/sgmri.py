"""Reads an SGMRI-VQA release: the authors' JSON tree and the slices beside it.

    python -m benchmarks prepare sgmri RELEASE --out DATASET [--image-root DATA] [--set NAME=VALUE ...]

Where the files lie is described in `benchmarks.readers.sgmri_release`; the slices come from fastMRI by
`python -m benchmarks slices fastmri`, or `prepare` makes them itself (`--volumes`, `--annotations`). A record's id depends on
organ, level, volume, frame, task and question only.

Truth boxes of a slice are those of its row. Those of a volume are, in this order, those of its row, those of the volume
metadata (`data_processing`), or those that the answer states. A box without area is left out and one that leaves the image is
cut at its border; both are counted in the report of what was dropped. In answers of closed questions `target.label` is the
answer itself: Yes or No, a letter, a number.

Options (`--set`):

| name              | default | meaning                                                                                           |
|-------------------|---------|---------------------------------------------------------------------------------------------------|
| knee_slice_offset | 0       | 0: as published, where knee questions and boxes name the frame before the true one; 1: corrected   |
|                   |         | (image, boxes and the frame numbers in texts move by one; a question about a volume's last frame   |
|                   |         | is left out and counted)                                                                          |
| validation_share  | 0       | share of the training volumes that becomes the split `val`, chosen by their names; none published |
| missing_volumes   | error   | `drop` leaves questions about volumes without slices out, and counts them                         |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.dataset import sha256_file
from benchmarks.errors import DataError
from benchmarks.fastmri import slice_folder, slice_name
from benchmarks.readers.base import Dropped, ImageSizes, Release, RowFaults, name_share
from benchmarks.readers.sgmri_release import (
    QuestionFile,
    VolumeFolders,
    candidates,
    frame_of_path,
    made_offset,
    metadata,
    question_files,
)
from benchmarks.readers.sgmri_rows import MetadataVolume, QuestionRow, RowBox
from benchmarks.readers.sgmri_truth import answer_boxes, cut_boxes, shifted_boxes
from benchmarks.schema import Answer, Image, Record, Source, Split
from benchmarks.sgmri import BOX_TASKS, TASKS, YES_NO, record_id, record_task
from benchmarks.sgmri_text import shift_frames

READER = "sgmri@1"
_FIX = "mend the row in a copy of the release, or report it to the release's authors"
_OPTION = re.compile(r"^\s*\(?([A-Z])[).:]\s", re.MULTILINE)
_YES_NO_QUESTION = re.compile(
    r"^\W*(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)\b|\byes or no\b", re.IGNORECASE
)
# Part of a path below the image root.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_LETTER = re.compile(r"^\s*\(?([A-Z])\)?(?:[).:\s]|$)")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the reader; see the module."""

    knee_slice_offset: Literal[0, 1] = 0
    validation_share: float = 0.0
    missing_volumes: Literal["error", "drop"] = "error"

    def __post_init__(self) -> None:
        if not 0 <= self.validation_share < 1:
            raise ValueError(f"validation_share {self.validation_share} is not at least 0 and below 1")


def open_release(release: Path, image_root: Path | None = None, settings: Mapping[str, str] | None = None) -> Release:
    """Opens a release folder.

    Args:
        release: Folder of the release.
        image_root: Folder of the slices; `data` in the release if there is one, else the release, if not given.
        settings: Options by name, as text.

    Returns:
        The records, faults and what is left out, in the order of files and rows.

    Raises:
        DataError: No questions, broken metadata, an unknown option.
    """
    options, files = check_release(release, settings or {})
    root = image_root or (release / "data" if (release / "data").is_dir() else release)
    made = made_offset(root)
    volumes, sources = metadata(release if made is None else root.parent / "data_processing")
    reading = _Reading(
        options=options, root=root, volumes=volumes, metadata_offset=options.knee_slice_offset - (made or 0)
    )
    return Release(
        items=(item for file in files for item in reading.rows(file, release)),
        image_root=root,
        sources={_name(path, release): sha256_file(path) for path in [*(file.path for file in files), *sources]},
        reader=READER,
    )


def check_release(release: Path, settings: Mapping[str, str]) -> tuple[Options, list[QuestionFile]]:
    """Whether there are questions and the options are right, before hours are spent on slices.

    Raises:
        DataError: No questions, or an unknown option.
    """
    if not release.is_dir():
        raise DataError(f"{release} is not a folder", fix="give the folder of the SGMRI-VQA release")
    return _options(settings), question_files(release)


def _name(path: Path, release: Path) -> str:
    return path.relative_to(release).as_posix() if path.is_relative_to(release) else path.name


def _options(settings: Mapping[str, str]) -> Options:
    try:
        return msgspec.convert(dict(settings), Options, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise DataError(
            f"not an option of this reader: {error}",
            where="--set",
            fix=f"the options are {', '.join(Options.__struct_fields__)} (python -m pydoc benchmarks.readers.sgmri)",
        ) from error


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One pass over a release."""

    options: Options
    root: Path
    volumes: Mapping[str, MetadataVolume]
    metadata_offset: int
    ids: dict[str, int] = field(default_factory=dict)
    folders: VolumeFolders = field(init=False)
    sizes: ImageSizes = field(init=False)

    def __post_init__(self) -> None:
        self.folders = VolumeFolders(self.root)
        self.sizes = ImageSizes(self.root)

    def rows(self, file: QuestionFile, release: Path) -> Iterator[Record | DataError | Dropped]:
        """The records of a file of questions."""
        name = _name(file.path, release)
        for number, raw in enumerate(_items(file.path), start=1):
            faults = RowFaults(f"{name} row {number}", _FIX)
            try:
                row = msgspec.convert(raw, QuestionRow)
            except msgspec.ValidationError as error:
                faults.add("row", str(error))
            else:
                yield from self._record(row, file, Source(id=f"{name}:{number}", file=name, row=number), faults)
            yield from faults.found

    def _record(
        self, row: QuestionRow, file: QuestionFile, source: Source, faults: RowFaults
    ) -> Iterator[Record | Dropped]:
        where = f"{source.file} row {source.row}"
        if row.task not in TASKS[file.level]:
            faults.add("task", f"task {row.task!r} is none of the {file.level} level ({', '.join(TASKS[file.level])})")
        faults.require(question=row.question, answer=str(row.answer))
        if _NAME.fullmatch(row.volume_id) is None:
            faults.add("volume_id", f"{row.volume_id!r} is not the name of a volume")
        if file.organ == "brain" and _NAME.fullmatch(row.modality) is None:
            faults.add("modality", f"{row.modality!r} is not the name of a sequence")
        if faults.found:
            return
        offset = self.options.knee_slice_offset if file.organ == "knee" else 0
        images = self._images(row, file, offset, faults)
        if not images and not faults.found:
            reason = "moved, its frame is not in the volume" if self._frames(row, file) else "the volume has no slices"
            yield Dropped(kind="record", reason=reason, where=f"{where}, volume {row.volume_id}")
        if not images or faults.found:
            return
        truth = cut_boxes(self._boxes(row, file, offset), images)
        yield from (Dropped(kind="box", reason=reason, where=where) for reason in truth.dropped)
        question, answer, reasoning = row.question, str(row.answer), row.reasoning
        if offset:
            question, answer = shift_frames(question, offset), shift_frames(answer, offset)
            reasoning = reasoning and shift_frames(reasoning, offset)
        choices = _choices(row)
        frame = images[0].frame if file.level == "image" else None
        name = record_id(file.organ, file.level, row.volume_id, row.task, row.question, frame=frame)
        self.ids[name] = self.ids.get(name, 0) + 1
        yield Record(
            # A question that the generator asked twice.
            id=name if self.ids[name] == 1 else f"{name}_{self.ids[name]}",
            benchmark="sgmri",
            split=self._split(row.volume_id, file),
            task=record_task(file.level, row.task),
            group=row.volume_id,
            images=tuple(images),
            question=question,
            choices=choices,
            answer_type=row.type,
            target=Answer(
                text=answer, label=_label(answer, row, choices), boxes=truth.boxes, reasoning=reasoning or None
            ),
            strata={
                "organ": file.organ,
                "modality": row.modality,
                "level": file.level,
                "official_task": row.task,
                "answer_type": row.type,
            },
            source=source,
        )

    def _split(self, volume: str, file: QuestionFile) -> Split:
        if not file.train:
            return "test"
        return "val" if name_share(volume) < self.options.validation_share else "train"

    def _folder(self, row: QuestionRow, file: QuestionFile) -> str:
        part: Literal["train", "val"] = "train" if file.train else "val"
        return slice_folder(file.organ, part, row.modality, row.volume_id)

    def _frames(self, row: QuestionRow, file: QuestionFile) -> tuple[int, ...]:
        return self.folders.frames(self._folder(row, file))

    def _images(self, row: QuestionRow, file: QuestionFile, offset: int, faults: RowFaults) -> list[Image]:
        """The images of a question; none if it is left out."""
        folder, frames = self._folder(row, file), self._frames(row, file)
        if file.level == "volume":
            paths = [f"{folder}/{slice_name(row.volume_id, frame)}" for frame in frames]
            if frames != tuple(range(1, len(frames) + 1)):
                faults.add(
                    "volume_id", f"the slices of {folder} are not numbered from 1 without a gap", "make them again"
                )
        elif row.slice_num is None:
            faults.add("slice_num", "slice_num is missing")
            return []
        else:
            path, frame = self._slice(row, file, folder, row.slice_num, offset), row.slice_num + offset
            paths = [] if path is None else [path]
            if path is not None and frame_of_path(path) != frame:
                faults.add("image_path", f"image {path!r} is not frame {frame}")
            elif path is not None and not path.endswith(f"/{slice_name(row.volume_id, frame)}"):
                faults.add("image_path", f"image {path!r} is not a slice of {row.volume_id}")
        if not paths and offset and frames and row.slice_num == frames[-1]:
            # Where boxes sit one frame early, the last frame has none: nothing but a normal slice can be lost here.
            if row.ground_truth.bboxes:
                faults.add(
                    "slice_num",
                    f"frame {row.slice_num} has boxes and is the last of its volume: its boxes are not one frame early",
                    "this release needs no --set knee_slice_offset=1",
                )
        elif not paths and self.options.missing_volumes == "error":
            faults.add(
                "volume_id",
                f"there is no slice of the question in {self.root / folder}",
                "make the slices (--volumes and --annotations), check --image-root, or leave such questions out with "
                "--set missing_volumes=drop",
            )
        try:
            return [self._image(path) for path in paths]
        except DataError as error:
            faults.add("images", error.message, error.fix)
            return []

    def _slice(self, row: QuestionRow, file: QuestionFile, folder: str, number: int, offset: int) -> str | None:
        """Path of the slice of an image question under the image root, if the file exists."""
        paths = [] if offset or row.image_path is None else list(candidates(row.image_path, file.path, self.root))
        paths.append(f"{folder}/{slice_name(row.volume_id, number + offset)}")
        return next((path for path in paths if ".." not in path and (self.root / path).is_file()), None)

    def _image(self, path: str) -> Image:
        width, height = self.sizes.get(path)
        return Image(path=path, width=width, height=height, frame=frame_of_path(path))

    def _boxes(self, row: QuestionRow, file: QuestionFile, offset: int) -> Sequence[RowBox]:
        """Truth boxes; those of a volume name their frames."""
        if row.ground_truth.bboxes or file.level == "image":
            return shifted_boxes(row.ground_truth.bboxes, offset)
        volume = self.volumes.get(row.volume_id)
        if volume is None:
            return shifted_boxes(answer_boxes(str(row.answer)), offset)
        moved = self.metadata_offset if file.organ == "knee" else 0
        return [
            msgspec.structs.replace(box, frame=item.slice + moved)
            for item in sorted(volume.slices, key=lambda item: item.slice)
            for box in item.bounding_boxes
        ]


def _items(path: Path) -> Sequence[object]:
    """The rows of a file: a list, or the one list of an object."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(f"not a JSON file: {error}", where=str(path), fix="get the file again") from error
    lists = (
        [raw]
        if isinstance(raw, list)
        else [v for v in raw.values() if isinstance(v, list)]
        if isinstance(raw, dict)
        else []
    )
    if len(lists) != 1:
        raise DataError("the file holds no list of questions", where=str(path), fix="get the file again")
    return list(lists[0])


def _choices(row: QuestionRow) -> tuple[str, ...]:
    """Option letters of a choice question, Yes and No of a question that asks for them; never told from the answer."""
    if row.type in ("single_choice", "multiple_choice"):
        return tuple(sorted({*(row.choices or {}), *_OPTION.findall(row.question)}))
    closed = row.type == "closed_ended" and row.task not in (*BOX_TASKS, "counting")
    return YES_NO if closed and _YES_NO_QUESTION.search(row.question) else ()


def _yes_no(answer: str) -> str | None:
    first = answer.strip().split()[0].strip(".,!;:").lower() if answer.strip() else ""
    return {"yes": "Yes", "y": "Yes", "no": "No", "n": "No"}.get(first)


def _label(answer: str, row: QuestionRow, choices: tuple[str, ...]) -> str | None:
    """The class of a closed answer."""
    if row.type == "single_choice":
        match = _LETTER.match(answer)
        return match[1] if match and match[1] in choices else None
    if row.task == "counting":
        return answer.strip() if answer.strip().isdecimal() else None
    return _yes_no(answer) if choices == YES_NO else None
