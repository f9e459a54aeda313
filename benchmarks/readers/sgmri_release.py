"""Where the parts of an SGMRI-VQA release lie, and how its texts name frames. Source: sgmri.md, sections 1 and 2.

The release is a folder like the authors' repository:

    data_generation/qa_reasoning_data/{brain,knee}/gpt4o_ORGAN_{train,val}_{image,volume}_qa_{image,volume}_qa_pairs.json
    data_processing/{brain,knee}/ORGAN_{train,val}_volumes.json
    data/{train,val}_labeled_raw_by_modality/{FLAIR,T1}/VOLUME/VOLUME_slice_NNN.png      brain
    data/knee_{train,val}_labeled_raw/VOLUME/VOLUME_slice_NNN.png                        knee

Files of questions are found anywhere below the folder by the words in their name. Some of the authors' scripts say
`test` for the split that the files call `val`; both are read, and so are names that say the level once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.errors import DataError
from benchmarks.fastmri_plus import Organ
from benchmarks.readers.sgmri_rows import MetadataVolume
from benchmarks.sgmri import Level

# Written by `benchmarks slices fastmri` beside `data` and `data_processing`, with the options it ran with.
SLICES_REPORT = "dropped.json"
_QUESTIONS = re.compile(
    r"(?:^|_)(?P<organ>brain|knee)_(?P<split>train|val|test)_(?P<level>image|volume)_qa(?:_(?P=level)_qa)?(?:_pairs)?\.json$"
)
_METADATA = re.compile(r"^(?P<organ>brain|knee)_(?P<split>train|val|test)_volumes\.json$")
_SLICE = re.compile(r"_slice_([0-9]{3,})\.png$")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFile:
    """A file of questions: its organ, level and whether it is of the training part."""

    path: Path
    organ: Organ
    level: Level
    train: bool


def question_files(release: Path) -> list[QuestionFile]:
    """The files of questions below a folder, in a fixed order.

    Raises:
        DataError: There is none, or two say the same.
    """
    found: dict[tuple[str, bool, str], QuestionFile] = {}
    for path in sorted(release.rglob("*.json")):
        match = _QUESTIONS.search(path.name)
        if match is None:
            continue
        level: Level = "image" if match["level"] == "image" else "volume"
        organ: Organ = "brain" if match["organ"] == "brain" else "knee"
        file = QuestionFile(path=path, organ=organ, level=level, train=match["split"] == "train")
        other = found.setdefault((file.organ, file.train, file.level), file)
        if other is not file:
            raise DataError(
                f"two files hold the {file.level} questions of one split: {other.path} and {path}",
                where=str(release),
                fix="keep one of them in the release folder",
            )
    if not found:
        raise DataError(
            "no file of questions such as gpt4o_knee_val_image_qa_image_qa_pairs.json is below this folder",
            where=str(release),
            fix="give the folder that holds data_generation/; `python -m benchmarks ls` says where to get it",
        )
    return [found[key] for key in sorted(found, key=lambda key: (key[0], not key[1], key[2]))]


def metadata(folder: Path) -> tuple[dict[str, MetadataVolume], list[Path]]:
    """The volume metadata below a folder by volume name, and the files read.

    Raises:
        DataError: A file is not of this form, or a volume is in two of them.
    """
    volumes: dict[str, MetadataVolume] = {}
    files = [path for path in sorted(folder.rglob("*_volumes.json")) if _METADATA.match(path.name)]
    for path in files:
        try:
            raw = msgspec.json.decode(path.read_bytes())
            # Brain files have a level of sequences, knee files have not.
            levels = [raw] if path.name.startswith("knee") else list(raw.values())
            read = [msgspec.convert(volume, MetadataVolume) for level in levels for volume in level.values()]
        except (msgspec.DecodeError, msgspec.ValidationError, AttributeError, OSError) as error:
            raise DataError(
                f"not volume metadata: {error}", where=str(path), fix="get the file again, or make it with `slices`"
            ) from error
        for volume in read:
            if volumes.setdefault(volume.volume_id, volume) is not volume:
                raise DataError(f"volume {volume.volume_id!r} occurs twice", where=str(path), fix="remove one of them")
    return volumes, files


def made_offset(root: Path) -> int | None:
    """The knee offset that the metadata beside slices of our own was made with; `None` for slices of other origin.

    Raises:
        DataError: The report beside the slices cannot be read.
    """
    path = root.parent / SLICES_REPORT
    if not path.is_file() or not (root.parent / "data_processing").is_dir():
        return None
    try:
        return int(msgspec.json.decode(path.read_bytes())["quirks"]["knee_slice_offset"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, OSError) as error:
        raise DataError(
            f"not the report of `slices fastmri`: {error!r}", where=str(path), fix="make the slices again"
        ) from error


def frame_of_path(path: str) -> int | None:
    """The frame number in a slice's file name."""
    match = _SLICE.search(path)
    return int(match[1]) if match else None


class VolumeFolders:
    """Frames of volumes by their folder under the image root; every folder is listed once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cache: dict[str, tuple[int, ...]] = {}

    def frames(self, folder: str) -> tuple[int, ...]:
        """Frame numbers of a volume's files in order; empty if there is no such folder."""
        if folder not in self._cache:
            names = (path.name for path in (self._root / folder).glob("*_slice_*.png"))
            self._cache[folder] = tuple(sorted(frame for name in names if (frame := frame_of_path(name)) is not None))
        return self._cache[folder]


def candidates(image_path: str, question_file: Path, root: Path) -> Iterator[str]:
    """Paths under the image root that a record's image path may mean, the most literal first."""
    if "\0" in image_path:
        return
    for literal in dict.fromkeys((Path(image_path), question_file.parent / image_path)):
        resolved = literal.resolve()
        if resolved.is_relative_to(root.resolve()):
            yield resolved.relative_to(root.resolve()).as_posix()
    if "/data/" in image_path:
        yield image_path.rsplit("/data/", 1)[1].lstrip("./")
    yield image_path.lstrip("./")
