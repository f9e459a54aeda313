"""Row types of the SGMRI-VQA release, as far as they are read; msgspec checks them. Source: sgmri.md, section 1."""

from __future__ import annotations

import msgspec


class RowBox(msgspec.Struct, frozen=True, kw_only=True):
    """A truth box: left, top, width, height in native pixels; `frame` at volume level only."""

    x: float
    y: float
    width: float
    height: float
    label: str = ""
    frame: int | None = None


class GroundTruth(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of the slice or volume. Image rows call the findings `diagnosis`, volume rows `final_diagnosis`."""

    labels: list[str] = []
    diagnosis: list[str] = []
    final_diagnosis: list[str] = []
    bboxes: list[RowBox] = []


class QuestionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A question; image rows have `slice_num` and `image_path`, volume rows `num_slices`.

    The generator gave counts as text, and sometimes as numbers.
    """

    volume_id: str
    modality: str
    task: str
    type: str
    question: str
    answer: str | int | float
    reasoning: str | None = None
    choices: dict[str, str] | None = None
    slice_num: int | None = None
    image_path: str | None = None
    num_slices: int | None = None
    ground_truth: GroundTruth = GroundTruth()


class MetadataSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of the volume metadata: its frame number and boxes."""

    slice: int
    bounding_boxes: list[RowBox] = []


class MetadataVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of the metadata."""

    volume_id: str
    final_diagnosis: list[str] = []
    slices: list[MetadataSlice] = []
