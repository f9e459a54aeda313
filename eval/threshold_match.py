"""Which validation predictions belong to which scored ones: those of the same system, and of no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.errors import DataError
from benchmarks.predictions import MANIFEST, Manifest, read_manifest
from eval.run import SHOWN, LoadedRun, load_runs

VALIDATION = "val"
# A control answers with the same weights, but is another system.
_SAME = ("weights_hash", "base_weights_hash", "encoder_fingerprint", "codec", "control")


def match_validation(
    runs: Sequence[LoadedRun], folders: Sequence[Path], data: Path | None = None
) -> dict[str, LoadedRun]:
    """Loads validation predictions.

    Args:
        runs: The runs to score.
        folders: Prediction folders of the validation split, at most one per system.
        data: Dataset folder to use instead of the one in each manifest; its hash is checked all the same.

    Returns:
        Name of a run -> its validation predictions; runs without a folder of their system are left out.

    Raises:
        DataError: A folder is not of the validation split, is of a system that is not scored (says what
            differs), shares records with the scored ones, or is one of two for the same system.
    """
    found: dict[str, LoadedRun] = {}
    for folder in folders:
        manifest = read_manifest(folder)
        _check_split(folder, manifest, runs)
        names = _names_of(folder, manifest, runs)
        (loaded,) = load_runs([folder], data)
        _check_records(loaded, runs[0])
        for name in names:
            if name in found:
                raise DataError(
                    f"two validation folders are of the system {name}: {found[name].folder} and {folder}",
                    where=str(folder / MANIFEST),
                    fix="give --threshold-from one folder per system",
                )
            found[name] = loaded
    return found


def _check_split(folder: Path, manifest: Manifest, runs: Sequence[LoadedRun]) -> None:
    where, fix = str(folder / MANIFEST), "predict the validation split: python -m infer WEIGHTS --data DATA --split val"
    if manifest.split == runs[0].manifest.split:
        raise DataError(
            f"{folder} and {runs[0].folder} both hold the split {manifest.split!r}: "
            "a threshold chosen on the records that it is tested on shows nothing",
            where=where,
            fix=fix,
        )
    if manifest.split != VALIDATION:
        raise DataError(
            f"a threshold is chosen on the split 'val' only, {folder} holds the split {manifest.split!r}",
            where=where,
            fix=fix,
        )


def _names_of(folder: Path, manifest: Manifest, runs: Sequence[LoadedRun]) -> list[str]:
    """Names of the runs of the same system."""
    if manifest.weights_hash is None:
        raise DataError(
            "nothing shows which system these validation predictions are of: the manifest has no weights_hash",
            where=str(folder / MANIFEST),
            fix="predict both splits from weights in a folder, or from the hub with a fixed revision",
        )
    differing = {run.name: list(_differences(manifest, run.manifest)) for run in runs}
    names = [name for name, found in differing.items() if not found]
    if not names:
        nearest = min(differing, key=lambda name: len(differing[name]))
        shown, more = differing[nearest][:SHOWN], len(differing[nearest]) - SHOWN
        raise DataError(
            f"{folder} is of another system than {'every folder that is scored; nearest is ' * (len(runs) > 1)}"
            f"{nearest}: {'; '.join(shown)}{f' and {more} more' if more > 0 else ''}",
            where=str(folder / MANIFEST),
            fix="predict the validation split with the same weights, recipe and overrides as the scored split",
        )
    return names


def _differences(validation: Manifest, scored: Manifest) -> Iterator[str]:
    for name in _SAME:
        ours, theirs = getattr(validation, name), getattr(scored, name)
        if ours != theirs:
            yield f"{name} is {_short(ours)} in validation, {_short(theirs)} here"
    yield from _recipe_differences(validation.recipe or {}, scored.recipe or {}, "recipe")


def _recipe_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in sorted({*ours, *theirs}):
        one, other = ours.get(key), theirs.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _recipe_differences(one, other, f"{path}.{key}")
        elif one != other:
            yield f"{path}.{key} is {_short(one)} in validation, {_short(other)} here"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _check_records(validation: LoadedRun, scored: LoadedRun) -> None:
    where = str(validation.folder / MANIFEST)
    if validation.info.benchmark != scored.info.benchmark:
        raise DataError(
            f"validation is of the benchmark {validation.info.benchmark!r}, scored is {scored.info.benchmark!r}",
            where=where,
            fix="choose the threshold on the same benchmark",
        )
    shared = sorted({record.id for record in validation.records} & {record.id for record in scored.records})
    if shared:
        raise DataError(
            f"{len(shared)} validation records are among the scored ones (first: {', '.join(shared[:SHOWN])})",
            where=where,
            fix="predict the validation split of the dataset that is scored",
        )
