"""Names of SGMRI-VQA: its tasks, answer types and the ids of its records.

A record's `task` says level and task in one word, `image_localization`, since tables and scores keep the levels
apart. Source of names and counts: sgmri.md, sections 1 and 3 (the paper, arXiv 2604.15808, and its code).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final, Literal

from benchmarks.schema import Ask, Record

Level = Literal["image", "volume"]
LEVELS: Final[tuple[Level, ...]] = ("image", "volume")
ORGANS: Final = ("brain", "knee")
TASKS: Final = MappingProxyType(
    {
        "image": ("detection", "localization", "classification", "diagnosis", "captioning"),
        "volume": ("detection", "localization", "counting", "classification", "captioning"),
    }
)
# Tasks whose answers hold boxes.
BOX_TASKS: Final = ("localization", "captioning")
# The choices of a yes/no question, as records spell them.
YES_NO: Final = ("Yes", "No")
# How questions begin that the published code adds beside the benchmark's, and its scorer skips.
EXTRA_GROUNDING: Final = "Locate the bounding box"
ANSWER_TYPES: Final = ("closed_ended", "single_choice", "multiple_choice", "open_ended")
# (organ, level, split) -> questions; the paper's Table 2. Its test split is called `val` in file names.
PUBLISHED_COUNTS: Final = MappingProxyType(
    {
        ("brain", "image", "train"): 12193,
        ("brain", "volume", "train"): 3231,
        ("brain", "image", "test"): 3704,
        ("brain", "volume", "test"): 1064,
        ("knee", "image", "train"): 12495,
        ("knee", "volume", "train"): 4095,
        ("knee", "image", "test"): 3750,
        ("knee", "volume", "test"): 775,
    }
)


def record_task(level: Level, task: str) -> str:
    """The task of a record: `image_detection`, `volume_counting`."""
    return f"{level}_{task}"


RECORD_TASKS: Final = tuple(record_task(level, task) for level in LEVELS for task in TASKS[level])


def level_and_task(question: Ask | Record) -> tuple[Level, str]:
    """Level and official task of a question.

    Raises:
        ValueError: The task is not one of this benchmark.
    """
    if question.task in RECORD_TASKS:
        level, _, task = question.task.partition("_")
        return ("image" if level == "image" else "volume"), task
    raise ValueError(f"task {question.task!r} is not a task of sgmri, such as image_detection or volume_counting")


def problems(record: Record) -> Iterator[tuple[str, str]]:
    """Yields (field, what is wrong) for what the scorers need of a record, whichever reader made it."""
    if record.task not in RECORD_TASKS:
        yield "task", f"unknown task {record.task!r}; the benchmark has {', '.join(RECORD_TASKS)}"
        return
    organ = record.strata.get("organ")
    if organ not in ORGANS:
        yield "strata.organ", f"{organ!r} is not one of {', '.join(ORGANS)}"
    bare = {box.image + 1 for box in record.target.boxes if record.images[box.image].frame is None}
    if bare and level_and_task(record)[0] == "volume":
        yield "images", f"a box lies on image {min(bare)}, which has no frame number"


def record_id(organ: str, level: Level, volume: str, task: str, question: str, *, frame: int | None = None) -> str:
    """An id that depends on what is asked only, not on file names or row numbers.

    It has the marks that the published scorer looks for: `_qa_` in all, `_video_` in those of volumes.
    """
    digest = hashlib.sha256(f"{task}\n{question}".encode()).hexdigest()[:8]
    kind = "image" if level == "image" else "video"
    place = "" if frame is None else f"_{frame:03d}"
    return f"{organ}_{kind}_qa_{volume}{place}_{digest}"
