"""The encoder: prompt template, image plan and codec in one object, with a fingerprint.

Training and prediction both build it with `build_encoder`, from the same recipe and processor, so
they cannot disagree on wording, image size or answer form; for models on a server there is
`build_chat_encoder`. The fingerprint is stored beside the weights; prediction and resuming refuse another one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.schema import Answer, Ask, Box, Mask, Record
from collators.codecs.base import Codec, CodecError, Invalid
from collators.codecs.registry import get_codec
from collators.frames import shown
from collators.prompts import Message, Template, breakable, load_template, neutralise
from recipes.compare import changes
from recipes.errors import RecipeError
from recipes.inputs import Canvas, Frames
from recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

# How images are sent to servers.
CHAT_IMAGES = "PNG, RGB, native size, reduced bicubically to max_pixels, detail high"


@dataclass(frozen=True, slots=True)
class Encoder:
    """Record to messages and target text, model text to answer.

    Attributes:
        template: Prompt template.
        codec: Answer form.
        canvas: How images become one picture; `None` for families that take them one by one.
        frames: Which slices of a volume are shown.
        image_tokens: Largest number of tokens of a sample's images together; `None` sets no limit.
        control_tokens: Every added token of the tokenizer; none may come out of data.
        parts: What the fingerprint covers, part -> value or hash; shown when two fingerprints differ.
        fingerprint: SHA-256 over `parts`.
    """

    template: Template
    codec: Codec
    canvas: Canvas | None
    frames: Frames
    image_tokens: int | None
    control_tokens: tuple[str, ...]
    parts: dict[str, Any]
    fingerprint: str

    def shown(self, record: Record) -> Record:
        """The record with the frames that the model is shown, and the part of its target that lies on them.

        Texts are decoded with the whole record's `Ask`: frames keep their official numbers.
        """
        return shown(record, self.frames)

    def messages(self, ask: Ask) -> list[Message]:
        """Chat messages of a question, images first."""
        return self.template.messages(ask, self.control_tokens)

    def prompt_text(self, ask: Ask) -> str:
        """The prompt of a question on a canvas, for families without turns.

        Raises:
            DataError: The images do not fit the canvas.
        """
        if self.canvas is None:
            raise ValueError("this encoder has no canvas: its prompts are messages")
        return self.template.text(ask, self.canvas, self.control_tokens)

    def target_text(self, record: Record) -> str:
        """The text to learn, without the end token.

        Raises:
            CodecError: The codec cannot express the record's task or answer.
        """
        try:
            return self.codec.encode(_neutral(record.target, self.control_tokens), record.ask())
        except CodecError as error:
            where = f"{record.place}, {error.where}"
            raise CodecError(error.message, where=where, fix=error.fix) from error

    def decode(self, text: str, ask: Ask) -> Answer | Invalid:
        """Reads a model's text."""
        return self.codec.decode(text, ask)


def build_encoder(recipe: Recipe, processor: ProcessorMixin) -> Encoder:
    """The one way to make an encoder; `processor` must already carry the recipe's image budget.

    Raises:
        RecipeError: The prompt cannot be used, or holds a control token.
        UserError: Unknown codec.
    """
    template = load_template(recipe.prompt)
    codec = get_codec(recipe.codec, recipe.canvas)
    control = _control_tokens(processor.tokenizer)
    texts = (("system", template.system), ("user", template.user), ("image_label", template.image_label))
    for part, text in texts:
        if neutralise(text, control) != text:
            raise RecipeError(
                f"the {part} text of the prompt holds a control token of the model: {text[:80]!r}",
                where=recipe.prompt.file or recipe.prompt.template,
                fix="leave control tokens to the chat template; images come before the text by themselves",
            )
    parts = {
        **_prompt_parts(recipe, template, codec),
        "min_pixels": recipe.images.min_pixels,
        **({} if recipe.images.max_tokens is None else {"image_tokens": recipe.images.max_tokens}),
        **({} if recipe.canvas is None else {"canvas": recipe.canvas.model_dump(mode="json")}),
        **processor_parts(processor),
    }
    fingerprint = _sha256(json.dumps(parts, sort_keys=True))
    return Encoder(template, codec, recipe.canvas, recipe.frames, recipe.images.max_tokens, control, parts, fingerprint)


def build_chat_encoder(recipe: Recipe) -> Encoder:
    """The encoder of a model on a server, whose tokenizer and processor are not here; covers what is sent.

    Without a tokenizer no control token is known, so texts are sent as they are.

    Raises:
        RecipeError: The prompt cannot be used, or the recipe is for a model that is loaded here.
        UserError: Unknown codec.
    """
    if recipe.model.family != "chat":
        raise RecipeError(
            f"a recipe of family {recipe.model.family} sizes images by its own processor, a server by another",
            where="model.family",
            fix="take a recipe of family chat, such as sgmri/chat_zero_shot",
        )
    template, codec = load_template(recipe.prompt), get_codec(recipe.codec)
    parts = _prompt_parts(recipe, template, codec) | {"images": CHAT_IMAGES}
    return Encoder(template, codec, None, recipe.frames, None, (), parts, _sha256(json.dumps(parts, sort_keys=True)))


def _prompt_parts(recipe: Recipe, template: Template, codec: Codec) -> dict[str, Any]:
    """What a fingerprint covers whatever the processor."""
    return {
        "system": template.system,
        "user": template.user,
        "codec": codec.name,
        "family": recipe.model.family,
        "max_pixels": recipe.images.max_pixels,
        **({"image_label": template.image_label} if template.image_label else {}),
        **{f"{{{field}}}": text for field, text in template.wording().items()},
        **(
            {} if recipe.frames.count is None else {"frames": recipe.frames.model_dump(mode="json", exclude={"unseen"})}
        ),
    }


def _control_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Every added token that is more than blanks, the longest first: breaking one must not leave a shorter one unseen.

    Raises:
        RecipeError: A special token cannot be kept out of data.
    """
    bare = [str(token) for token in tokenizer.all_special_tokens if not breakable(str(token))]
    if bare:
        raise RecipeError(
            f"the tokenizer has the special token {bare[0]!r}: text from data that holds it cannot be told from it",
            where="model.checkpoint",
            fix="give a checkpoint whose special tokens have two characters or more",
        )
    added = (str(token) for token in tokenizer.get_added_vocab())
    return tuple(sorted(filter(breakable, added), key=lambda token: (-len(token), token)))


def processor_parts(processor: ProcessorMixin) -> dict[str, str]:
    """Hashes of all that turns text and images into numbers; equal before saving and after loading."""
    backend = json.loads(processor.tokenizer.backend_tokenizer.to_str())
    backend |= {"padding": None, "truncation": None}  # state of the last call, not part of the encoder
    image = processor.image_processor.to_dict()
    keys = ("size", "patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std", "resample")
    flags = ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb", "rescale_factor")
    return {
        "tokenizer": _sha256(json.dumps(backend, sort_keys=True)),
        "chat_template": _sha256(str(processor.chat_template)),
        "image_processor": _sha256(
            json.dumps({key: image.get(key) for key in keys + flags}, sort_keys=True, default=str)
        ),
    }


def differences(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Lines `part: stored -> now` for the parts in which two encoders differ, long texts cut."""
    return changes(_shortened(theirs), _shortened(mine))


def _shortened(parts: dict[str, Any]) -> dict[str, Any]:
    return {key: value[:60] if isinstance(value, str) else value for key, value in parts.items()}


def _neutral(answer: Answer, control_tokens: tuple[str, ...]) -> Answer:
    """The answer with control tokens broken in every free text; the codec's own tokens come later."""
    # Codecs write the blanks of a region as underscores, which may complete a token.
    spelled = (*control_tokens, *(token.replace("_", " ") for token in control_tokens if "_" in token))

    def clean(text: str | None) -> str | None:
        return None if text is None else neutralise(text, spelled)

    return Answer(
        text=clean(answer.text),
        label=clean(answer.label),
        boxes=tuple(Box(image=box.image, xyxy=box.xyxy, label=clean(box.label)) for box in answer.boxes),
        masks=tuple(
            Mask(image=mask.image, path=mask.path, rle=mask.rle, label=clean(mask.label)) for mask in answer.masks
        ),
        reasoning=clean(answer.reasoning),
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
