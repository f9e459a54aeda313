"""Phantoms of the release's size, as records and pictures to measure with."""

from __future__ import annotations

from pathlib import Path

from benchmarks.phantom import PhantomConfig
from benchmarks.phantom_release import write_release
from benchmarks.prepare import prepare


def write_phantoms(folder: Path, *, patients: int, questions: int) -> Path:
    """Draws patients, each with two views of 256 x 1024 pixels, and prepares their questions as split `train`.

    Args:
        folder: Where release and dataset go.
        patients: Number of patients.
        questions: Questions drawn for each patient and task; repeats are left out.

    Returns:
        The prepared dataset.
    """
    config = PhantomConfig(
        train=patients,
        val=0,
        test=0,
        vqa=questions,
        grounding=questions,
        grounded_vqa=questions,
        abnormal_share=0.5,
    )
    release, data = folder / "release", folder / "data"
    write_release(config, release)
    prepare("scintiground", release, data)
    return data
