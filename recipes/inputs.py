"""Recipe sections on what goes into a model and comes out: records, prompt, images, slices, canvas; names of forms.

See `recipes.schema`, which puts them into a recipe.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
# The names are written here and not asked of the packages that hold them: those import this one. A test compares.
TemplateName = Literal[
    "scintiground",
    "scintiground_class_first",
    "scintiground_canvas",
    "scintiground_canvas_paper",
    "answer_en",
    "scintiground_short",
    "sgmri",
    "sgmri_answer_first",
    "sgmri_text",
    "sgmri_short",
    "plain",
    "choices",
]
CodecName = Literal[
    "scintiground_json",
    "scintiground_class_first",
    "scintiground_tags",
    "scintiground_old_json",
    "sgmri_json",
    "sgmri_answer_first",
    "sgmri_text",
    "bbox_2d",
    "plain",
    "loc_tokens",
    "seg_tokens",
]
# Their boxes are places on the composed canvas, so that they mean nothing without its plan.
CANVAS_CODECS: tuple[CodecName, ...] = ("loc_tokens", "seg_tokens")


class Section(BaseModel):
    """Base of all sections: frozen, no unknown keys, nothing but finite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class Data(Section):
    """Which records to train on and to validate with.

    Attributes:
        dataset: Folder made by `python -m benchmarks prepare`.
        train: Split to train on.
        validation: Split for the validation loss; `null` trains without one.
        validation_limit: Use only the first N validation records; `null` uses all.
    """

    dataset: str
    train: Literal["train", "val", "test"] = "train"
    validation: Literal["train", "val", "test"] | None = "val"
    validation_limit: Positive | None = None


class Prompt(Section):
    """How a record becomes messages.

    Attributes:
        template: Name of a built-in template.
        file: A YAML file of your own with the keys of a template; its hash enters the fingerprint.
    """

    template: TemplateName = "plain"
    file: str | None = None


class Images(Section):
    """Pixel budget of one image after resizing; read back from the produced grid.

    Attributes:
        min_pixels: Smallest area in pixels; smaller images are enlarged.
        max_pixels: Largest area in pixels; larger images are reduced.
        max_tokens: Largest number of tokens of all images of a sample together: each image gets an equal share, where
            that is less than `max_pixels` (then `min_pixels` gives way, too); `null` sets no limit. For volumes.

    Family `chat` has `max_pixels` only: images are sent in their native size, larger ones are reduced.
    """

    min_pixels: Positive = 65_536
    max_pixels: Positive = 1_003_520
    max_tokens: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Images:
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels {self.min_pixels} is above max_pixels {self.max_pixels}")
        return self


class Frames(Section):
    """Which slices of a volume are shown, for records with several numbered frames. Training and prediction see the same.

    Frames keep their official numbers, and answers are scored against the whole volume.

    Attributes:
        select: `all`; `uniform` shows `count` frames at equal distances from the first to the last; `window` shows
            `count` neighbouring frames around `center`, moved inwards at the ends. A volume of fewer frames is shown whole.
        count: How many frames at most.
        center: Frame number in the middle of a window; `null` takes the volume's middle.
        unseen: What becomes of a training record with a target box on a frame that is not shown: `error` ends the run
            before its first step, `drop` leaves the record out, `cut` leaves such boxes out of the target, and the record
            where no box remains. What is left out is counted in the manifest.
    """

    select: Literal["all", "uniform", "window"] = "all"
    count: Positive | None = None
    center: Positive | None = None
    unseen: Literal["error", "drop", "cut"] = "error"

    @model_validator(mode="after")
    def _counted(self) -> Frames:
        if (self.select == "all") != (self.count is None):
            raise ValueError(f"select: {self.select} goes {'without' if self.select == 'all' else 'with'} count")
        if self.center is not None and self.select != "window":
            raise ValueError(f"center is for select: window, not {self.select}")
        return self


class Canvas(Section):
    """How the images of a record become one square picture, for families that see a single one.

    Panels keep their native size and stand at the top or the left; whatever they leave free is black.

    Attributes:
        size: Side of the square in pixels, as the checkpoint expects it (PaliGemma: 224, 448 or 896).
        arrange: Panels from left to right, or from top to bottom.
        order: Views in the order of their panels; empty takes the images in the record's order.
        missing: What becomes of a view of `order` that a record does not show: `leave_out` gives it no panel, so that
            a single view has the canvas to itself, as published; `black` gives it a black panel of the size of the
            record's largest image, so that each view has its own place on every canvas.
        gap: Black pixels between panels, in native pixels.
        resize: `squash` stretches the panels into the square, as published; `pad` keeps their aspect ratio: the
            shorter side is first filled up with black, at the right or at the bottom.
    """

    size: Positive
    arrange: Literal["side_by_side", "stacked"] = "side_by_side"
    order: tuple[str, ...] = ()
    missing: Literal["leave_out", "black"] = "leave_out"
    gap: Annotated[int, Field(ge=0)] = 0
    resize: Literal["squash", "pad"] = "squash"

    @model_validator(mode="after")
    def _orderly(self) -> Canvas:
        if len(set(self.order)) < len(self.order):
            raise ValueError(f"order {list(self.order)} names a view twice")
        if self.missing == "black" and not self.order:
            raise ValueError("missing: black needs order, which names the views that every canvas has a panel for")
        return self
