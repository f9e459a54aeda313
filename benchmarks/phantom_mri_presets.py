"""Named sizes of `phantom-mri`, and changes to them from the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from benchmarks.phantom_mri import CONTRASTS, KINDS, MriConfig
from benchmarks.phantom_mri_wording import FORMS
from benchmarks.phantom_presets import change_preset

# Small pictures: one slice is one vision token of a model with patches of 16 pixels merged by 2.
_SMALL = MriConfig(
    flair_px=32,
    t1_px=32,
    knee_px=32,
    # The published preparation drops brain volumes with fewer.
    brain_slices_min=10,
    brain_slices_max=10,
    knee_slices_min=6,
    knee_slices_max=8,
    # About as many questions for a finding are answered yes as no.
    absent_share=0.25,
    slices=2,
    findings=2,
    depth=2,
    kinds=3,
    shuffle_options=False,
    style="short",
    volume_boxes=True,
)
PRESETS: dict[str, MriConfig] = {
    # The sizes of the real volumes.
    "full": MriConfig(),
    # With the release's fault: knee findings are one frame early in the questions.
    "faulty": MriConfig(knee_fault=True),
    # For tests: seconds.
    "tiny": dataclasses.replace(_SMALL, train=6, val=4, style="full", shuffle_options=True, volume_boxes=False),
    # Learnt on two cores within minutes.
    "demo_mri": dataclasses.replace(_SMALL, seed=2, train=300, val=40, contrast="compressed"),
    # Another population than the demo's: grey scale and language differ.
    "demo_base_mri": dataclasses.replace(_SMALL, seed=1, train=1500, val=20, wording="report"),
}
_RANGES = {
    **dict.fromkeys(("train", "val", "slices"), (0, None)),
    **dict.fromkeys(("flair_px", "t1_px", "knee_px"), (24, None)),
    "brain_slices_min": (2, None),
    "brain_slices_max": (2, None),
    "knee_slices_min": (2, None),
    "knee_slices_max": (2, None),
    "findings": (1, None),
    "depth": (1, None),
    "kinds": (1, min(len(kinds) for kinds in KINDS.values())),
    **dict.fromkeys(("normal_share", "normal_slices", "absent_share"), (0, 1)),
}
_CHOICES = {"contrast": tuple(CONTRASTS), "wording": tuple(FORMS)}


def configure(preset: str, settings: Sequence[str] = ()) -> MriConfig:
    """A preset with changes of the form `train=50`.

    Raises:
        DataError: Unknown preset or setting, or a value out of range; lists everything that is wrong.
    """
    return change_preset(PRESETS, preset, settings, _out_of_range)


def _out_of_range(config: MriConfig) -> list[str]:
    problems = []
    for name, (low, high) in _RANGES.items():
        value = getattr(config, name)
        if value < low or (high is not None and value > high):
            problems.append(
                f"{name}={value} is not {f'between {low} and {high}' if high is not None else f'{low} or more'}"
            )
    for organ in ("brain", "knee"):
        low, high = (getattr(config, f"{organ}_slices_{end}") for end in ("min", "max"))
        if low > high:
            problems.append(f"{organ}_slices_min={low} is above {organ}_slices_max={high}")
    for name, choices in _CHOICES.items():
        if getattr(config, name) not in choices:
            problems.append(f"{name}={getattr(config, name)} is not one of {', '.join(choices)}")
    return problems
