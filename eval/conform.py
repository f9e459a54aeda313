"""Checks our published scorers against a file of reference cases.

A file names its layout under `format`; each other key whose value is a list or an object is a kind of
cases, unless the layout knows it as a description. Nothing is skipped: an unknown format, kind or schema is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.errors import DataError
from eval.conform_compare import Mismatch
from eval.scintiground import reference as scintiground
from eval.sgmri import reference as sgmri

_Run = Callable[[str, object, str], tuple[int, list[Mismatch]]]

# Format -> what makes, of a whole file and its path, the function that runs one kind of its cases.
_FORMATS: Mapping[str, Callable[[Mapping[str, Any], str], _Run]] = {
    "scintiground-vectors/1": lambda _document, _where: scintiground.run_kind,
    "sgmri-vectors/1": sgmri.kind_runner,
}
# Format -> keys that describe the file and hold no cases.
_DESCRIPTIONS: Mapping[str, frozenset[str]] = {"sgmri-vectors/1": sgmri.DESCRIPTIONS}


def run_conform(path: Path) -> list[Mismatch]:
    """All mismatches between our scorer and the file's cases, in file order.

    Raises:
        DataError: The file is missing or not JSON, or its format, a kind or a schema is unknown.
    """
    return [mismatch for _, _, found in _run(path) for mismatch in found]


def conform_report(path: Path) -> tuple[list[str], int]:
    """Lines to print, and the exit status: 0 without a mismatch, else 1.

    Raises:
        DataError: As `run_conform`.
    """
    kinds = _run(path)
    lines = [str(mismatch) for _, _, found in kinds for mismatch in found]
    for kind, number, found in kinds:
        lines.append(f"{kind}: {number} cases, {_plural(len(found))}")
    total = sum(len(found) for _, _, found in kinds)
    lines.append(f"{path}: {sum(number for _, number, _ in kinds)} cases, {_plural(total)}")
    lines.append("next: python -m eval PREDICTIONS --profile published")
    return lines, int(total > 0)


def _plural(mismatches: int) -> str:
    return {0: "no mismatch", 1: "1 mismatch"}.get(mismatches, f"{mismatches} mismatches")


def _run(path: Path) -> list[tuple[str, int, list[Mismatch]]]:
    document = _load(path)
    name = document.get("format")
    if not isinstance(name, str) or name not in _FORMATS:
        raise DataError(
            f"unknown format {name!r} of reference cases",
            where=f"{path}, field format",
            fix=f"this program runs {', '.join(_FORMATS)}",
        )
    described = _DESCRIPTIONS.get(name, frozenset())
    kinds = {key: value for key, value in document.items() if isinstance(value, list | dict) and key not in described}
    if not kinds:
        raise DataError("the file holds no cases", where=str(path))
    run_kind = _FORMATS[name](document, str(path))
    return [(kind, *run_kind(kind, cases, f"{path}, field {kind}")) for kind, cases in kinds.items()]


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read the file: {error.strerror}", where=str(path), fix="check the path") from error
    except ValueError as error:
        raise DataError(f"not a JSON file: {error}", where=str(path), fix="give a file of reference cases") from error
    if not isinstance(document, dict):
        raise DataError("not a file of reference cases: the top level is no object", where=str(path))
    return document
