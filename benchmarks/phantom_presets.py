"""Named sizes of the phantom, and changes to them from the command line."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from benchmarks.errors import DataError
from benchmarks.phantom import CONTRASTS, LAYOUTS, PhantomConfig
from benchmarks.phantom_mri import MriConfig
from benchmarks.phantom_wording import FORMS

PRESETS: dict[str, PhantomConfig] = {
    # The release's image size and class imbalance.
    "full": PhantomConfig(),
    # Small pictures and as many abnormal as normal questions, so that learning shows within minutes.
    "demo": PhantomConfig(
        seed=2,
        train=1200,
        val=30,
        test=120,
        width=64,
        height=128,
        abnormal_share=0.5,
        lesion_share=0.5,
        paired_only=True,
        contrast="compressed",
    ),
    # The demo's phantoms with the release's class imbalance: one question in ten is about an abnormal region.
    "minority": PhantomConfig(
        seed=10,
        train=1200,
        val=60,
        test=240,
        width=64,
        height=128,
        abnormal_share=0.1,
        lesion_share=0.05,
        paired_only=True,
        contrast="compressed",
    ),
    # Another population than the demo's: body, detector and language differ.
    "demo_base": PhantomConfig(
        seed=1,
        train=6000,
        val=40,
        test=60,
        width=64,
        height=128,
        vqa=6,
        grounding=2,
        grounded_vqa=2,
        abnormal_share=0.5,
        lesion_share=0.8,
        both_share=0.15,
        paired_only=True,
        layout="broad",
        wording="report",
    ),
}
Config = TypeVar("Config", PhantomConfig, MriConfig)
_CHOICES = {"layout": tuple(LAYOUTS), "contrast": CONTRASTS, "wording": tuple(FORMS)}
_MINIMUM = {"train": 0, "val": 0, "test": 0, "width": 16, "height": 16, "vqa": 0, "grounding": 0, "grounded_vqa": 0}


def configure(preset: str, settings: Sequence[str] = ()) -> PhantomConfig:
    """A preset with changes of the form `train=50`.

    Raises:
        DataError: Unknown preset or setting, or a value out of range; lists everything that is wrong.
    """
    return change_preset(PRESETS, preset, settings, _out_of_range)


def change_preset(
    presets: Mapping[str, Config], preset: str, settings: Sequence[str], out_of_range: Callable[[Config], list[str]]
) -> Config:
    """One of the presets with changes `key=value`; `out_of_range` says what is wrong with the values.

    Raises:
        DataError: Unknown preset or setting, or a value out of range; lists everything that is wrong.
    """
    if preset not in presets:
        raise DataError(f"unknown preset {preset!r}", fix=f"the presets are {', '.join(presets)}")
    values: dict[str, object] = dataclasses.asdict(presets[preset])
    names = list(values)
    problems = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name in names and equals:
            values[name] = value
        else:
            near = difflib.get_close_matches(name, names, n=1)
            problems.append(f"unknown setting {setting!r}" + (f", did you mean {near[0]}=?" if near else ""))
    config = presets[preset]
    try:
        config = msgspec.convert(values, type(config), strict=False)
        problems += out_of_range(config)
    except msgspec.ValidationError as error:
        problems.append(str(error))
    if problems:
        raise DataError("; ".join(problems), fix=f"settings are written key=value; keys: {', '.join(names)}")
    return config


def _out_of_range(config: PhantomConfig) -> list[str]:
    problems = [
        f"{name}={getattr(config, name)} is less than {low}"
        for name, low in _MINIMUM.items()
        if getattr(config, name) < low
    ]
    for name in ("abnormal_share", "lesion_share", "both_share"):
        if not 0 <= getattr(config, name) <= 1:
            problems.append(f"{name}={getattr(config, name)} is not between 0 and 1")
    for name, choices in _CHOICES.items():
        if getattr(config, name) not in choices:
            problems.append(f"{name}={getattr(config, name)} is not one of {', '.join(choices)}")
    return problems
