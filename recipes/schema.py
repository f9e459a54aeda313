"""The recipe: one run, written down like a paper's appendix.

A recipe is a YAML file of the sections below. Unknown keys are errors that name the nearest valid
key, and all mistakes of a file are reported at once. `load_recipe(path, overrides)` applies dotted
overrides such as `train.learning_rate=1e-4`, whose values are YAML too.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from recipes.inputs import (
    CANVAS_CODECS,
    Canvas,
    CodecName,
    Data,
    Frames,
    Images,
    Positive,
    Prompt,
    Section,
)
from recipes.running import Batch, Decoding, Selection, Train

LocalFamily = Literal["qwen3_vl", "paligemma"]
Family = Literal[LocalFamily, "chat"]
FreezeGroup = Literal["vision", "projector", "language", "embeddings", "head"]
Role = Literal["attention", "mlp"]


class Model(Section):
    """The pretrained weights.

    Attributes:
        family: Family of the architecture; checked against the checkpoint's own config. `chat` is any model behind a
            server with OpenAI's chat interface: it is asked, not trained.
        checkpoint: Hub name or folder; of family `chat`, the name that the server knows.
        revision: Commit or tag on the hub; `null` takes the default branch.
        dtype: Type of the base weights in memory.
        quantization: `nf4` loads the base in 4 bits with double quantization (needs the `quant` extra).
        attention: Attention implementation. PaliGemma knows no `flash_attention_2`, which drops the mask that lets
            image and prompt see each other; the language model of PaliGemma 2 always runs in `eager`, the only one
            that caps its attention.
    """

    family: Family
    checkpoint: str
    revision: str | None = None
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    quantization: Literal["none", "nf4"] = "none"
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"


class Adapter(Section):
    """LoRA inside the language model, or full fine-tuning.

    Attributes:
        kind: `lora` trains an adapter, `full` trains every weight that `freeze` leaves.
        rank: LoRA rank.
        alpha: LoRA scale is alpha / rank.
        dropout: Dropout on the adapter's input.
        roles: Which linear layers of each language block get an adapter.
        vision: The layers of the vision tower that bear the names of those roles get one too (PaliGemma: its query, key
            and value projections).
        train_also: Modules trained in full beside the adapter and saved with it. Embeddings and head that share one
            matrix in the checkpoint go on sharing it: name `embeddings`, or both.
        init: Run or model folder with an adapter to start from, of the same rank, alpha, roles and `train_also`, on the
            same base and with the same encoder; `null` starts a new one.
    """

    kind: Literal["lora", "full"]
    rank: Positive = 16
    alpha: Annotated[float, Field(gt=0)] = 32.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    roles: tuple[Role, ...] = ("attention", "mlp")
    vision: bool = False
    train_also: tuple[Literal["projector", "embeddings", "head"], ...] = ()
    init: str | None = None

    @model_validator(mode="after")
    def _lora_only(self) -> Adapter:
        if self.kind == "full" and self.train_also:
            raise ValueError("train_also is for kind lora: full fine-tuning trains whatever freeze leaves")
        if self.kind == "full" and self.vision:
            raise ValueError("vision is for kind lora: full fine-tuning trains whatever freeze leaves")
        if self.kind == "full" and self.init is not None:
            raise ValueError("init is for kind lora: give weights to go on from as model.checkpoint")
        return self


class Recipe(Section):
    """A whole run.

    Attributes:
        name: Names the output folder and the row in tables.
        frames: Which slices of a volume are shown.
        canvas: How images become one picture; `null` for families that take them one by one.
        codec: Form of the answer text.
        freeze: Groups of base weights that are not trained; LoRA freezes all base weights by itself.
        vision_cache: Where the features of a vision tower that is not trained are kept, so that each image set is encoded
            once: `memory` for the epochs of a run and in each process apart, `disk` for all processes and runs with the
            same images, tower and way of computing, prediction included. Each set is then encoded by itself, so that its features
            do not depend on the batch; `off` encodes the images of a batch together. `pixels` keeps on disk what goes into the
            tower instead, for towers that are trained: reading and resizing are done once.
        vision_cache_dir: Folder for `disk` and `pixels`; `null` takes the folder `vision_cache` in that of the dataset.
        vision_cache_gib: Bound on the features' size in GiB, in memory for each process; when it is reached, further image
            sets are encoded every time. Bound and folder may change when a run is continued.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    data: Data
    prompt: Prompt = Prompt()
    images: Images = Images()
    frames: Frames = Frames()
    canvas: Canvas | None = None
    codec: CodecName
    model: Model
    adapter: Adapter
    freeze: tuple[FreezeGroup, ...] = ()
    batch: Batch
    train: Train
    selection: Selection = Selection()
    decoding: Decoding = Decoding()
    vision_cache: Literal["off", "memory", "disk", "pixels"] = "off"
    vision_cache_dir: str | None = None
    vision_cache_gib: Annotated[float, Field(gt=0)] = 16.0

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.codec in CANVAS_CODECS and self.canvas is None:
            raise ValueError(f"codec {self.codec} writes places on a canvas: add the section canvas, at least its size")
        if self.codec != "seg_tokens" and self.decoding.mask_decoder is not None:
            raise ValueError(f"decoding.mask_decoder is for codec seg_tokens; codec {self.codec} writes no mask codes")
        if self.codec not in CANVAS_CODECS and self.decoding.valid_boxes:
            raise ValueError(
                f"decoding.valid_boxes is for boxes of location tokens ({', '.join(CANVAS_CODECS)}); codec {self.codec} "
                "writes other ones"
            )
        self._check_family()
        self._check_vision_cache()
        if self.model.quantization == "nf4" and self.adapter.kind == "full":
            raise ValueError("model.quantization nf4 cannot be trained in full: set adapter.kind to lora")
        if self.data.validation is None and (self.selection.by == "score" or self.selection.patience is not None):
            raise ValueError("selection needs validation records: set data.validation, or selection.by: last")
        if self.adapter.kind == "lora" and self.train.optimizer == "muon":
            raise ValueError("train.optimizer muon is for adapter.kind full: it makes no sense on LoRA's thin factors")
        if self.adapter.kind == "lora" and not self.adapter.roles:
            raise ValueError("adapter.roles is empty: LoRA would train nothing")
        if self.adapter.kind == "lora" and self.freeze:
            raise ValueError("freeze is for adapter.kind full: LoRA freezes every base weight by itself")
        return self

    def _check_family(self) -> None:
        """What a family cannot do with the other sections."""
        family = self.model.family
        if family != "paligemma" and self.canvas is not None:
            raise ValueError(f"canvas is for families that see one picture; {family} takes each image by itself")
        if family == "qwen3_vl":
            self._check_qwen3_vl()
        elif family == "paligemma":
            self._check_paligemma()
        elif self.images.min_pixels > Images().min_pixels or self.images.max_tokens is not None:
            raise ValueError(
                "images: a server's model has only max_pixels here; its own processor enlarges images and counts tokens"
            )

    def _check_qwen3_vl(self) -> None:
        if self.batch.share_images and self.model.attention != "sdpa":
            raise ValueError(f"batch.share_images needs model.attention: sdpa, not {self.model.attention}")
        if self.adapter.vision:
            raise ValueError("adapter.vision: no layer of qwen3_vl's vision tower has the name of a role")

    def _check_paligemma(self) -> None:
        if self.canvas is None:
            raise ValueError(
                "paligemma sees one picture: add the section canvas, with the checkpoint's size (224, 448, 896)"
            )
        if self.frames != Frames():
            raise ValueError("frames chooses slices of a volume, paligemma sees one picture")
        if self.images != Images():
            raise ValueError("images sets a pixel budget, which paligemma has not: canvas.size is its only size")
        if self.model.attention == "flash_attention_2":
            raise ValueError("model.attention flash_attention_2 drops paligemma's mask over image and prompt: use sdpa")

    def _check_vision_cache(self) -> None:
        """Features are kept only where nothing that makes them is trained."""
        if self.vision_cache_dir is not None and self.vision_cache not in ("disk", "pixels"):
            raise ValueError(f"vision_cache_dir is for vision_cache: disk or pixels, not {self.vision_cache}")
        if self.vision_cache == "off":
            return
        if self.model.family == "chat":
            raise ValueError(
                f"vision_cache {self.vision_cache} is for models that are loaded here: set vision_cache: off"
            )
        if self.vision_cache == "pixels":
            return
        trained = [group for group in ("vision", "projector") if group not in self.freeze]
        if self.adapter.kind == "full" and trained:
            why, fix = f"adapter.kind full trains {' and '.join(trained)}", "set freeze: [vision, projector]"
        elif self.adapter.vision:
            why, fix = "adapter.vision trains layers of the vision tower", "set adapter.vision: false"
        elif "projector" in self.adapter.train_also:
            why, fix = "adapter.train_also trains the projector", "leave projector out of it"
        else:
            return
        raise ValueError(
            f"vision_cache {self.vision_cache} needs features that stay the same, but {why}: {fix}, or vision_cache: pixels or off"
        )
