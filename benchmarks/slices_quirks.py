"""What the published preparation of SGMRI-VQA does that one may want otherwise, as named options.

Defaults are as published, so that slices, metadata and questions of the release fit together. Source: sgmri.md, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal

import msgspec

from benchmarks.errors import DataError
from benchmarks.fastmri_plus import Organ


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Options of `make_slices`; the slices themselves do not depend on them, what is said about them does.

    Attributes:
        knee_slice_offset: Added to a knee row's slice (from 0) to give the frame (from 1). Published: 0, so that every
            knee box sits one frame too early; right: 1. Brain rows always get 1, which is right.
        brain_min_slices: Brain volumes of fewer slices are left out. Published: 10; 1 keeps all.
        boxes: Published: `as_is`. `valid` leaves out boxes without area and rows that repeat an earlier one, and clips
            boxes to the picture (six knee boxes begin at -1). Their labels stay.
        study_level: Where the label of a row about the whole volume goes besides the volume's diagnosis. Published:
            `slice_0`, the slice that such rows name, as if it were a finding there; right: `volume`, nowhere.
    """

    knee_slice_offset: Literal[0, 1] = 0
    brain_min_slices: Annotated[int, msgspec.Meta(ge=0)] = 10
    boxes: Literal["as_is", "valid"] = "as_is"
    study_level: Literal["slice_0", "volume"] = "slice_0"

    def frame(self, organ: Organ, index: int) -> int:
        """The frame (from 1) that a row's slice (from 0) is taken for."""
        return index + (1 if organ == "brain" else self.knee_slice_offset)

    def enough(self, organ: Organ, slices: int) -> bool:
        """Whether a volume of so many slices is kept."""
        return organ != "brain" or slices >= self.brain_min_slices


def parse_quirks(settings: Sequence[str]) -> Quirks:
    """Reads `key=value` changes to the published defaults.

    Raises:
        DataError: Unknown key or a value that it cannot have; names what there is.
    """
    known = [field.name for field in fields(Quirks)]
    changes = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in known:
            raise DataError(f"unknown option {key!r} in --set {setting}", fix=f"the options are {', '.join(known)}")
        changes[key] = value
    try:
        return msgspec.convert(changes, Quirks, strict=False)
    except msgspec.ValidationError as error:
        raise DataError(
            f"--set {' '.join(settings)}: {error}",
            fix="knee_slice_offset=0|1, brain_min_slices=N, boxes=as_is|valid, study_level=slice_0|volume",
        ) from error
