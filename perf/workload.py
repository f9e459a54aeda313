"""Data and model for `job`, `train` and `infer`: volumes and pairs of views with questions, and a random Qwen3-VL.

    python -m perf workload --out FOLDER

`FOLDER/data` gets grey PNG files of `pixels` x `pixels` (256 make 64 tokens, 320 make 100) and two files of `questions`
rows each (`perf.rows`): in `volumes.plain.jsonl` `group` rows after one another ask about the `slices` slices of one
volume, in `pairs.plain.jsonl` each row asks about two views of its own. Question and answer of a row have `tokens` tokens together, which the model's tokenizer has counted; the chat template's own tokens come on top.
`FOLDER/model` gets a Qwen3-VL of 4,961,312 random weights: 1.0 M of them in vision tower and projector, 1.6 M in the
embeddings, which the head shares, and 2.4 M in the blocks of the language model. Vision and language take about the
shares of the work that they have in the model of 2 B. The same sizes give the same bytes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image as PILImage

from perf.rounds import MeasurementError
from perf.rows import Row, write_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DATA = "data"
MODEL = "model"
BLOCK = 32  # pixels of a picture's side that make a token
GROUP = 5  # questions about one volume
VIEWS = 2
GRAIN = 16  # blobs along a picture's side: smooth as scans are, so that a file is decoded as fast
VOCABULARY = 8192
WORDS = (
    "the a no with and of in left right upper lower lobe liver kidney brain knee cyst mass lesion edema tear signal high low "
    "small large shows there is any where which normal bright dark rim tissue near above below joint spine hot spot uptake"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the rows are.

    Attributes:
        questions: Rows of each task.
        slices: Slices of a volume.
        group: Questions about a volume.
        pixels: Side of slices and views, a multiple of 32: 256 gives 64 tokens, 320 gives 100.
        tokens: Tokens of question and answer together.
    """

    questions: int = 20
    slices: int = 20
    group: int = GROUP
    pixels: int = 256
    tokens: int = 40

    def __post_init__(self) -> None:
        if self.pixels % BLOCK:
            raise MeasurementError(
                f"pictures of {self.pixels} pixels are no whole tokens", where="--pixels", fix="give a multiple of 32"
            )
        if self.tokens < 2:
            raise MeasurementError(
                f"{self.tokens} tokens are no question with an answer", where="--tokens", fix="give at least 2"
            )


def write_workload(folder: Path, size: Workload) -> None:
    """Writes `model` and `data` below a folder."""
    write_model(folder / MODEL)
    write_data(folder / DATA, folder / MODEL, size)


def write_model(folder: Path) -> None:
    """Writes the random Qwen3-VL with its processor; each word of `WORDS` is a token."""
    from models.tiny import TinySize, build_tiny_qwen3_vl
    from perf.paligemma_step import enlarge_vocabulary

    form = TinySize(hidden=192, layers=5, vision_hidden=96, vision_layers=4)
    build_tiny_qwen3_vl(folder, [f"{word} {word}" for word in WORDS.split()], form, seed=0)
    enlarge_vocabulary(folder, VOCABULARY)


def write_data(folder: Path, model: Path, size: Workload) -> None:
    """Writes pictures and rows of both tasks; `model` holds the tokenizer that counts."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    # A row is drawn from its own name, so that it does not depend on how many there are.
    for task, group, count in (("volumes", size.group, size.slices), ("pairs", 1, VIEWS)):
        rows: list[Row] = []
        for number in range(size.questions):
            name = f"{task}-{number // group}"
            rows.append(
                Row(
                    id=f"{name}-{number % group}",
                    images=rows[-1].images if number % group else _pictures(folder, name, count, size.pixels),
                    question=_text(f"question {task} {number}", tokenizer, size.tokens // 2),
                    answer=_text(f"answer {task} {number}", tokenizer, size.tokens - size.tokens // 2),
                )
            )
        write_rows(folder, task, rows)


def _pictures(folder: Path, name: str, count: int, pixels: int) -> tuple[str, ...]:
    """Writes the pictures of a volume or pair; returns their paths below the folder."""
    rng = random.Random(name)
    paths = [f"images/{name}/{number:02d}.png" for number in range(count)]
    (folder / "images" / name).mkdir(parents=True, exist_ok=True)
    for path in paths:
        small = PILImage.frombytes("L", (GRAIN, GRAIN), rng.randbytes(GRAIN**2))
        small.resize((pixels, pixels), PILImage.Resampling.BICUBIC).save(folder / path)
    return tuple(paths)


def _text(name: str, tokenizer: PreTrainedTokenizerBase, tokens: int) -> str:
    """Words drawn at random, as many as make so many tokens."""
    rng, words = random.Random(name), WORDS.split()
    text = rng.choice(words)
    while len(tokenizer(text, add_special_tokens=False)["input_ids"]) < tokens:
        text += f" {rng.choice(words)}"
    return text
