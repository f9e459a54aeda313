"""The benchmarks this project reads: one table, written out, no discovery.

`python -m benchmarks ls` prints it. To add a benchmark, write a reader with
`open_release(release, image_root) -> Release` and add a line here.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import scintiground_rules, sgmri
from benchmarks.errors import DataError
from benchmarks.readers.base import Release
from benchmarks.schema import Record

Rules = Callable[[Record], Iterator[tuple[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A benchmark.

    Attributes:
        name: Name on the command line and in records.
        module: Module with `open_release(release, image_root) -> Release`.
        reads: What the reader expects as RELEASE.
        get: Where the data come from and on which terms.
        put: Where the files go.
        rules: Yields (field, what is wrong) for a record beyond the schema; `None` if there are no further rules.
        strata: Strata that the scorer needs, told from the record itself, for records of the generic reader.
        options: Whether `open_release` takes a third argument, options by name as text.
    """

    name: str
    module: str
    reads: str
    get: str
    put: str
    rules: Rules | None = None
    strata: Callable[[Record], dict[str, str]] | None = None
    options: bool = False

    def open_release(self, release: Path, image_root: Path | None, settings: Mapping[str, str]) -> Release:
        """Opens a release with this benchmark's reader.

        Raises:
            DataError: The release cannot be read, or an option is unknown.
        """
        if settings and not self.options:
            raise DataError(f"the reader {self.name} has no options", where="--set", fix="leave --set out")
        module = importlib.import_module(self.module)
        result: Release = module.open_release(release, image_root, *([settings] if self.options else []))
        return result


TABLE = (
    Entry(
        name="scintiground",
        module="benchmarks.readers.scintiground",
        reads="folder with multitask.jsonl and paired_evidence.jsonl, or with multitask_{train,val,test}.jsonl",
        get=(
            "questions: the authors of ScintiGround-38K (github.com/Liamours/wbbs-vlm-experiment); "
            "images: BS-80K (Huang et al., Comput Biol Med 151:106221, 2022), not redistributable"
        ),
        put="images as bs80k/wholeBodyANT/ID.jpg and bs80k/wholeBodyPOST/ID.jpg in the release, or --image-root",
        rules=scintiground_rules.problems,
        strata=scintiground_rules.default_strata,
    ),
    Entry(
        name="sgmri",
        module="benchmarks.readers.sgmri",
        reads="folder with data_generation/ (gpt4o_ORGAN_SPLIT_LEVEL_qa_..._pairs.json); options: --set",
        get=(
            "questions: SpatialGroundingVQA/SGMRI-VQA (arXiv 2604.15808); volumes: fastMRI (fastmri.med.nyu.edu, own "
            "agreement, not redistributable); boxes: fastMRI+ (github.com/microsoft/fastmri-plus)"
        ),
        put="slices as data/... in the release or --image-root; or --volumes and --annotations, from which they are made",
        rules=sgmri.problems,
        options=True,
    ),
    Entry(
        name="generic",
        module="benchmarks.readers.generic",
        reads="a .jsonl or .csv file: images, question, answer and more (python -m pydoc benchmarks.readers.generic)",
        get="your own data",
        put="images beside the file, or --image-root",
    ),
)


def find(name: str) -> Entry:
    """Looks a benchmark up.

    Raises:
        DataError: Unknown name; names the known ones and the nearest.
    """
    names = [entry.name for entry in TABLE]
    if name in names:
        return TABLE[names.index(name)]
    near = difflib.get_close_matches(name.lower(), names, n=1)
    raise DataError(
        f"unknown benchmark {name!r}; known: {', '.join(names)}",
        fix=f"did you mean {near[0]}?" if near else "`python -m benchmarks ls` describes them",
    )
