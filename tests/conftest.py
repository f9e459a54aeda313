"""Shared fixtures: a small phantom dataset and tiny random twins of each family, made once per test process."""

from __future__ import annotations

import functools
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recipes.load import load_recipe
from recipes.schema import Recipe

# Overrides that make a demo recipe end within seconds.
SMALL = (
    "batch.size=4",
    "batch.workers=0",
    "train.max_steps=3",
    "train.save_steps=2",
    "train.log_steps=1",
    "train.warmup_steps=0",
    "decoding.max_new_tokens=12",
    "decoding.batch_size=4",
)


@pytest.fixture(scope="session")
def phantom_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small release in the official form: 12 training, 4 validation and 6 test patients of 64 x 128 pixels."""
    from benchmarks.phantom import PhantomConfig
    from benchmarks.phantom_release import write_release

    folder = tmp_path_factory.mktemp("phantom") / "release"
    config = PhantomConfig(
        seed=22, train=12, val=4, test=6, width=64, height=128, vqa=2, grounding=2, grounded_vqa=2, abnormal_share=0.5
    )
    write_release(config, folder)
    return folder


@pytest.fixture(scope="session")
def phantom_data(phantom_release: Path) -> Path:
    """The prepared dataset of `phantom_release`."""
    from benchmarks.prepare import prepare

    folder = phantom_release.parent / "data"
    prepare("scintiground", phantom_release, folder)
    return folder


@pytest.fixture(scope="session")
def tiny(phantom_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen3-VL checkpoint with its processor."""
    import torch

    from benchmarks.dataset import read_records
    from collators.codecs.registry import get_codec
    from models.tiny import TinySize, build_tiny_qwen3_vl

    # Threads only wait for each other at this size, the more so beside other test processes.
    torch.set_num_threads(1)
    codec = get_codec("scintiground_json")
    texts = []
    for record in read_records(phantom_data, "train"):
        texts += [f"{record.task}: {record.question}", codec.encode(record.target, record.ask())]
    folder = tmp_path_factory.mktemp("tiny") / "model"
    build_tiny_qwen3_vl(folder, texts, TinySize(), seed=0)
    return folder


@pytest.fixture(scope="session")
def tiny_grouped_heads(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3-VL as the larger released ones are: three heads share keys and values, the head is not tied."""
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    folder = tmp_path_factory.mktemp("grouped_heads") / "model"
    shutil.copytree(tiny, folder)
    config = Qwen3VLConfig.from_pretrained(tiny)
    config.text_config.update({"num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": False})
    config.tie_word_embeddings = False
    torch.manual_seed(0)
    Qwen3VLForConditionalGeneration(config).float().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_recipe(tiny: Path, phantom_data: Path) -> Callable[..., Recipe]:
    """The demo's LoRA recipe on the tiny model and small dataset, with overrides."""

    def make(*overrides: str) -> Recipe:
        small = (
            f"data.dataset={phantom_data}",
            f"model.checkpoint={tiny}",
            *SMALL,
        )
        return load_recipe("demo/lora", [*small, *overrides])

    return make


@pytest.fixture(scope="session", params=[1, 2], ids=["first", "second"])
def paligemma_generation(request: pytest.FixtureRequest) -> int:
    """1 or 2: tests that use it run with both."""
    generation: int = request.param
    return generation


@pytest.fixture(scope="session")
def tiny_paligemma(phantom_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A tiny random PaliGemma of a generation, with its processor: pictures of 32 x 32 pixels, 16 image tokens."""
    import torch

    from benchmarks.dataset import read_records
    from models.tiny_paligemma import TinyPaliGemmaSize, build_tiny_paligemma

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tiny_paligemma")

    @functools.cache
    def build(generation: int) -> Path:
        texts = []
        for record in read_records(phantom_data, "train"):
            target = record.target
            texts += [f"{record.task}: {record.question}", target.text or "", target.label or ""]
            texts += [box.label or "" for box in target.boxes]
        build_tiny_paligemma(folder / str(generation), texts, TinyPaliGemmaSize(generation=generation), seed=0)
        return folder / str(generation)

    return build


@pytest.fixture(scope="session")
def make_paligemma_recipe(tiny_paligemma: Callable[[int], Path], phantom_data: Path) -> Callable[..., Recipe]:
    """The demo's PaliGemma recipe on a tiny model and the small dataset, with overrides."""

    def make(*overrides: str, generation: int = 1) -> Recipe:
        small = (
            f"data.dataset={phantom_data}",
            f"model.checkpoint={tiny_paligemma(generation)}",
            *SMALL,
        )
        return load_recipe("demo/paligemma_lora", [*small, *overrides])

    return make


class _Deprecations(logging.Handler):
    """Collects deprecations that transformers sends through `logging`, where no warning filter sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "deprecat" in record.getMessage().lower():
            self.seen.append(record.getMessage())


@pytest.fixture(autouse=True)
def no_logged_deprecations() -> Iterator[list[str]]:
    """Fails a test in which transformers logged a deprecation."""
    handler = _Deprecations()
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield handler.seen
    logger.removeHandler(handler)
    assert not handler.seen, handler.seen
