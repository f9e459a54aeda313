"""Prompt templates: an `Ask` to chat messages, in our own words.

A template has a `system` and a `user` text. Fields in braces are filled from the record: `{question}`,
`{task}`, `{images}` (a sentence that names the views or frames), `{volume}` (how many slices of which size, for MRI),
`{instruction}` (the form of answer that the question's answer type asks for) and `{choices}`. `image_label` is a text
before each image that has a frame, with `{frame}`, its number. A template of your own is a YAML file with these keys;
its text enters the encoder's fingerprint.

Text never becomes a control token: `neutralise` breaks every such token in the filled template, in
training and in prediction alike. A token cannot come about where two fields meet either.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.canvas import plan_layout
from benchmarks.schema import Ask, Image
from benchmarks.sgmri import YES_NO
from recipes.errors import RecipeError
from recipes.inputs import Canvas, Prompt

_LINE_BREAKS = re.compile(r"\s*[\r\n]\s*")
# SentencePiece tokenizers write a blank as the last of these.
BLANKS = " \t\r\n\u2581"
FIELDS = ("question", "task", "images", "volume", "instruction", "choices")
KEYS = ("system", "user", "image_label")
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt: texts with fields in braces; an empty system text gives no system turn, an empty label none at all."""

    system: str
    user: str
    image_label: str = ""

    def messages(self, ask: Ask, control_tokens: Sequence[str]) -> list[Message]:
        """Chat messages: system turn, then one user turn with the images in record order and the text."""
        system, text = self._fill(ask, describe_images(ask), control_tokens)
        user: list[Message] = []
        for image in ask.images:
            if self.image_label and image.frame is not None:
                user.append({"type": "text", "text": self.image_label.format(frame=image.frame)})
            user.append({"type": "image"})
        messages: list[Message] = [{"role": "user", "content": [*user, {"type": "text", "text": text}]}]
        if self.system:
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": system}]})
        return messages

    def text(self, ask: Ask, canvas: Canvas, control_tokens: Sequence[str]) -> str:
        """One text for families without turns, whose images are one canvas: system and user text, a blank between.

        A blank at the start of the template's user text is kept: the published PaliGemma run had one. A line break
        becomes a blank: to PaliGemma it means that the prompt is over.
        """
        system, user = (
            neutralise(_LINE_BREAKS.sub(" ", text).strip(), control_tokens)
            for text in self._fill(ask, describe_panels(ask, canvas), control_tokens)
        )
        return " ".join(filter(None, (system, f" {user}" if self.user.startswith(" ") else user)))

    def wording(self) -> dict[str, str]:
        """Field -> texts of ours that it may put into the prompt, for the fields that the template has."""
        probes = [
            Ask(task="", images=(Image(path="a", width=2, height=1, frame=1),) * count, question="") for count in (1, 2)
        ]
        texts = {
            "instruction": " ".join(INSTRUCTIONS.values()),
            "volume": " ".join(describe_volume(probe) for probe in probes),
        }
        return {field: text for field, text in texts.items() if f"{{{field}}}" in self.system + self.user}

    def _fill(self, ask: Ask, images: str, control_tokens: Sequence[str]) -> tuple[str, str]:
        """System and user text of a question; `images` describes its images."""
        values = {
            "question": ask.question,
            "task": ask.task,
            "images": images,
            "volume": describe_volume(ask),
            "instruction": INSTRUCTIONS.get(answer_form(ask) or "", ""),
            "choices": "; ".join(ask.choices),
        }
        user = neutralise(self.user.format_map(values).strip(), control_tokens)
        return neutralise(self.system.format_map(values), control_tokens), user


# What sgmri.md, section 4, says of the task instructions, in our own words.
INSTRUCTIONS = {
    "yes_no": "Answer Yes or No.",
    "number": "Answer with a number.",
    "letter": "Answer with the letter of the one right option.",
    "letters": "Answer with the letters of all options that apply.",
    "place": "State the location, and box every such finding on every frame that shows it.",
    "summary": "Describe everything of note, and box every finding on every frame that shows it.",
}
_SGMRI_SYSTEM = (
    "You are a radiologist reading brain and knee MRI for a research study. You are shown one slice or the slices of one "
    "volume in their order, each after its frame number. "
)
_SGMRI_BOX = "with x and y the left and top edge, all four in pixels of the slice as it was taken; an empty list if nothing is to be boxed."

BUILT_IN: dict[str, Template] = {
    # Same information as the published system turn (scintiground.md, section 4), not its words.
    "scintiground": Template(
        system=(
            "You read planar whole-body bone scans. You are shown an anterior (ANT) view, a posterior (PST) view, or "
            "both. Judge only what the images show and reply with one line of compact JSON for the given task type. "
            'vqa: {{"task","answer","class"}} with class yes or no. grounding: {{"task","region","boxes"}}. '
            'grounded_vqa: {{"task","answer","region","class","boxes"}} with class normal or abnormal. '
            'Each box is {{"view":"ANT" or "PST","bbox":[x1,y1,x2,y2]}} in pixels of that view.'
        ),
        user="{images} Task type: {task}. {question}",
    ),
    # The same with the class before sentence and boxes, as the codec of that name writes it.
    "scintiground_class_first": Template(
        system=(
            "You read planar whole-body bone scans. You are shown an anterior (ANT) view, a posterior (PST) view, or "
            "both. Judge only what the images show and reply with one line of compact JSON for the given task type. "
            'vqa: {{"task","class","answer"}} with class yes or no. grounding: {{"task","region","boxes"}}. '
            'grounded_vqa: {{"task","class","region","boxes","answer"}} with class normal or abnormal. '
            'Each box is {{"view":"ANT" or "PST","bbox":[x1,y1,x2,y2]}} in pixels of that view.'
        ),
        user="{images} Task type: {task}. {question}",
    ),
    # PaliGemma's: one text, no turns. With the blank before it as the published run wrote it: "<image> ANT is ...".
    "scintiground_canvas": Template(system="", user="{images} Task type: {task}. {question}"),
    "scintiground_canvas_paper": Template(system="", user=" {images} Task type: {task}. {question}"),
    # The prefix of PaliGemma's own question answering in English.
    "answer_en": Template(system="", user="answer en {question}"),
    # For tiny models: every token of a fixed system text costs time and tells them nothing.
    "scintiground_short": Template(system="", user="{task}: {question}"),
    # SGMRI-VQA: the published prompts are lost; these say what is known of them (sgmri.md, section 4).
    "sgmri": Template(
        system=f"{_SGMRI_SYSTEM}Reply with one JSON object and nothing else: "
        '{{"reasoning": why, "answer": the answer, "bboxes": [{{"frame": its number, "label": the finding, '
        f'"bbox": [x, y, width, height]}}}}]}}}}, {_SGMRI_BOX}',
        user="{volume} {question}\n{instruction}",
        image_label="Frame {frame}:",
    ),
    # The same with the answer first, as the codec of that name writes it.
    "sgmri_answer_first": Template(
        system=f"{_SGMRI_SYSTEM}Reply with one JSON object and nothing else: "
        '{{"answer": the answer, "bboxes": [{{"frame": its number, "label": the finding, '
        f'"bbox": [x, y, width, height]}}}}], "reasoning": why}}}}, {_SGMRI_BOX}',
        user="{volume} {question}\n{instruction}",
        image_label="Frame {frame}:",
    ),
    # For chat models that are not tuned: words, with boxes as tags.
    "sgmri_text": Template(
        system=f"{_SGMRI_SYSTEM}Give the answer first, then in one sentence why. Write a box as "
        f"Frame 7: <bbx>[x, y, width, height]</bbx>, {_SGMRI_BOX}",
        user="{volume} {question}\n{instruction}",
        image_label="Frame {frame}:",
    ),
    # For tiny models.
    "sgmri_short": Template(system="", user="{question}", image_label="{frame}"),
    "plain": Template(system="", user="{question}"),
    "choices": Template(system="", user="{question} Choose one of: {choices}. Reply with the choice only."),
}


def load_template(prompt: Prompt) -> Template:
    """The template a recipe names: a built-in one, or the user's file.

    Raises:
        RecipeError: Missing or malformed file, unknown field in braces.
    """
    if prompt.file is None:
        return BUILT_IN[prompt.template]
    path = Path(prompt.file)
    if not path.is_file():
        raise RecipeError(f"prompt file {prompt.file} does not exist", where="prompt.file", fix="mend the path")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise RecipeError(f"not YAML: {error}", where=prompt.file, fix="mend the named line") from error
    if not isinstance(data, dict) or set(data) - set(KEYS) or not isinstance(data.get("user"), str):
        raise RecipeError(
            "a prompt file has the texts `user` and, if wanted, `system` and `image_label`",
            where=prompt.file,
            fix='for example: user: "{images} {question}"',
        )
    template = Template(**{key: str(data.get(key) or "") for key in KEYS})
    for text in (template.system, template.user):
        _check_fields(text, FIELDS, prompt.file)
    _check_fields(template.image_label, ("frame",), prompt.file)
    return template


def _check_fields(text: str, known: Sequence[str], where: str) -> None:
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise RecipeError(
            f"unbalanced braces: {error}", where=where, fix="write {{ and }} for literal braces"
        ) from error
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise RecipeError(
            f"unknown field {{{unknown[0]}}}",
            where=where,
            fix=f"fields are {', '.join(known)}; {{{{ and }}}} are braces",
        )


def describe_images(ask: Ask) -> str:
    """A sentence on the order of the images; the posterior view is called PST, as in the answers.

    Source of the wording for views: scintiground.md, section 4.
    """
    views = ["PST" if image.view == "POST" else image.view for image in ask.images]
    if all(views) and len(views) == 1:
        return f"The provided image is {'POST' if views[0] == 'PST' else views[0]}."
    if all(views) and len(views) == 2:
        return f"{views[0]} is the first image and {views[1]} is the second image."
    frames = [image.frame for image in ask.images]
    if all(frame is not None for frame in frames) and frames:
        return "The images are frames " + ", ".join(str(frame) for frame in frames) + ", in this order."
    return ""


def describe_volume(ask: Ask) -> str:
    """How many slices there are, which frames and of which size in native pixels; empty for images without frames."""
    frames = [image.frame for image in ask.images if image.frame is not None]
    if not frames or len(frames) < len(ask.images):
        return ""
    sizes = list(dict.fromkeys(f"{image.width} x {image.height}" for image in ask.images))
    size = f"{sizes[0]} pixels" if len(sizes) == 1 else f"{', '.join(sizes)} pixels"
    if len(frames) == 1:
        return f"One MRI slice of {size}."
    return f"{len(frames)} frames of one MRI volume, {frames[0]} to {frames[-1]}, each of {size}."


def answer_form(ask: Ask) -> str | None:
    """A key of `INSTRUCTIONS`: what form of answer a question wants; `None` where nothing says so."""
    task = ask.task.partition("_")[2]
    forms = {"localization": "place", "captioning": "summary", "counting": "number"}
    if task in forms:
        return forms[task]
    if ask.choices == YES_NO:
        return "yes_no"
    return {"single_choice": "letter", "multiple_choice": "letters"}.get(ask.answer_type or "")


def describe_panels(ask: Ask, canvas: Canvas) -> str:
    """A sentence on where the views stand on their canvas; none for a single one, or for images without a view.

    Source of the wording for two views side by side: scintiground.md, section 4.
    """
    panels = plan_layout(canvas, ask.images).panels
    views = [panel.view for panel in panels]
    if len(views) < 2 or not all(views):
        return ""
    sides, direction = ("left", "right"), "from left to right"
    if canvas.arrange == "stacked":
        sides, direction = ("upper", "lower"), "from top to bottom"
    if len(views) == 2:
        text = f"{views[0]} is the {sides[0]} panel and {views[1]} is the {sides[1]} panel."
    else:
        text = f"The panels {direction} are {', '.join(map(str, views))}."
    black = [str(panel.view) for panel in panels if panel.image is None]
    return f"{text} There is no {' and no '.join(black)} image: its panel is black." if black else text


def breakable(token: str) -> bool:
    """Whether a blank can break a token: two characters or more, blanks around them not counted.

    Runs of blanks or line breaks, which some tokenizers add as tokens of their own, are ordinary text.
    """
    return len(token.strip(BLANKS)) > 1


def neutralise(text: str, control_tokens: Sequence[str]) -> str:
    """Breaks every control token inside data text by a blank after its first character that is none.

    The result holds no control token, and text without any is returned as it is.

    Args:
        text: Text from data.
        control_tokens: All `breakable`, the longer ones first.
    """
    found = True
    while found:
        found = False
        for token in control_tokens:
            if token in text:
                first = len(token) - len(token.lstrip(BLANKS)) + 1
                text = text.replace(token, f"{token[:first]} {token[first:]}")
                found = True
    return text
