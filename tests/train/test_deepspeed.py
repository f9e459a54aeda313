"""ZeRO-2, ZeRO-3 and FSDP train what one process trains; what they cannot do is refused; no process waits for ever."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from benchmarks.dataset import image_root
from benchmarks.predictions import read_predictions
from benchmarks.prepare import prepare as prepare_data
from recipes.errors import RecipeError
from tests.launching import ROOT
from tests.sharding import (
    DDP,
    FSDP,
    answers,
    assert_same_run,
    deepspeed,
    history,
    launch,
    plain_model,
    trained,
    weights,
)
from train import launch as launching
from train.launch import check_launch
from train.memory import Launch
from train.prepare import prepare
from train.run import run

STEPS = 9  # a pass over 71 samples: the last step has 7, a process 3
KINDS = {"lora": (), "full": ("adapter.kind=full", "train.learning_rate=1.0e-3")}


def silent(line):
    """Takes the place of print."""


@pytest.fixture(scope="module")
def words(tiny, phantom_data):
    """Overrides that every run here shares."""
    return [
        f"data.dataset={phantom_data}",
        f"model.checkpoint={tiny}",
        f"train.max_steps={STEPS}",
        f"train.save_steps={STEPS}",
        "train.log_steps=1",
        "train.warmup_steps=0",
        "batch.workers=0",
    ]


@pytest.fixture(scope="module")
def single(make_recipe, words, tmp_path_factory):
    """Kind -> the run of one process with 8 samples per step."""
    found = {}
    for kind, overrides in KINDS.items():
        found[kind] = tmp_path_factory.mktemp("single") / kind
        run(make_recipe(*words, "batch.size=8", *overrides), found[kind], silent)
    return found


def test_processes_see_different_numbers_of_images(make_recipe, words):
    """What the runs below rest on: no pass waits for a process that has fewer of them."""
    prepared = prepare(make_recipe(*words, "batch.size=4", "batch.max_tokens=250"), silent)
    schedule, lengths = prepared.schedule, prepared.train.lengths
    schedule.processes = 2
    shares = [
        [sum(lengths[i].images for i in micro.samples) for micro in part]
        for step in schedule.epoch(0)
        for part in step.parts
    ]
    pairs = list(zip(shares[::2], shares[1::2], strict=True))
    assert all(len(first) == len(second) for first, second in pairs)
    assert any(first != second for first, second in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "kind", "cut"),
    [
        (3, "lora", ("batch.size=1", "batch.accumulation=4")),
        (3, "full", ("batch.size=2", "batch.accumulation=2")),
        (3, "full", ("batch.size=4", "batch.max_tokens=250")),
        (2, "full", ("batch.size=1", "batch.accumulation=4")),
        (2, "lora", ("batch.size=2", "batch.accumulation=2")),
        (2, "full", ("batch.size=4", "batch.max_tokens=250")),
    ],
)
def test_zero_equals_one_process(stage, kind, cut, single, words, tiny, make_recipe, tmp_path):
    """However a step is cut, in passes and over processes; the saved folder is an ordinary one."""
    trained(deepspeed(tmp_path, stage), [*words, *KINDS[kind], *cut], tmp_path / "out")
    assert json.loads((tmp_path / "out/manifest.json").read_text())["processes"] == 2
    assert_same_run(tmp_path / "out", single[kind])
    recipe = make_recipe()
    logits, tokens = answers(plain_model(tmp_path / "out", tiny, kind), recipe)
    wanted, wanted_tokens = answers(plain_model(single[kind], tiny, kind), recipe)
    assert (logits - wanted).norm() <= 1e-3 * wanted.norm()
    assert torch.equal(tokens, wanted_tokens)


@pytest.mark.slow
@pytest.mark.parametrize(("generation", "kind"), [(1, "lora"), (1, "full"), (2, "full")])
def test_zero3_equals_one_process_with_paligemma(
    generation, kind, words, tiny_paligemma, make_paligemma_recipe, tmp_path
):
    """As above; `adapter.vision` so that every part of the model has weights to train."""
    tiny = tiny_paligemma(generation)
    vision = ("adapter.vision=true",) if kind == "lora" else ()
    shared = [*words, f"model.checkpoint={tiny}", *KINDS[kind], *vision]
    recipe = make_paligemma_recipe(*shared, "batch.size=8", generation=generation)
    run(recipe, tmp_path / "one", silent)
    cut = ("batch.size=2", "batch.accumulation=2")
    trained(deepspeed(tmp_path, 3), [*shared, *cut], tmp_path / "out", recipe="demo/paligemma_lora")
    assert_same_run(tmp_path / "out", tmp_path / "one")
    logits, tokens = answers(plain_model(tmp_path / "out", tiny, kind), recipe)
    wanted, wanted_tokens = answers(plain_model(tmp_path / "one", tiny, kind), recipe)
    assert (logits - wanted).norm() <= 1e-3 * wanted.norm()
    assert torch.equal(tokens, wanted_tokens)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fsdp_equals_one_process(kind, single, words, tmp_path):
    """With CPU processes in the place of GPUs."""
    cut = ("batch.size=2", "batch.accumulation=2")
    more = {"module": "tests.fsdp_on_cpu", "ACCELERATE_TORCH_DEVICE": "cpu"}
    trained(FSDP, [*words, *KINDS[kind], *cut], tmp_path / "out", **more)
    assert_same_run(tmp_path / "out", single[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fsdp_equals_one_process_with_paligemma(kind, words, tiny_paligemma, make_paligemma_recipe, tmp_path):
    shared = [*words, f"model.checkpoint={tiny_paligemma(1)}", *KINDS[kind]]
    run(make_paligemma_recipe(*shared, "batch.size=8"), tmp_path / "one", silent)
    cut = ("batch.size=2", "batch.accumulation=2")
    more = {"module": "tests.fsdp_on_cpu", "ACCELERATE_TORCH_DEVICE": "cpu"}
    trained(FSDP, [*shared, *cut], tmp_path / "out", recipe="demo/paligemma_lora", **more)
    assert_same_run(tmp_path / "out", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_zero3_resumes_bit_for_bit(kind, words, tmp_path):
    how, out, whole = deepspeed(tmp_path, 3), tmp_path / "out", tmp_path / "whole"
    dropout = ("adapter.dropout=0.1",) if kind == "lora" else ()
    shared = [*words, *KINDS[kind], *dropout, "batch.size=4", "train.save_steps=3", "train.keep_checkpoints=9"]
    trained(how, shared, out)
    shutil.copytree(out, whole)
    for gone in ("checkpoint-6", "checkpoint-9"):
        shutil.rmtree(out / "checkpoints" / gone)
    shutil.rmtree(out / "model")
    (out / "manifest.json").unlink()
    assert "continuing from checkpoint-3" in trained(how, shared, out)
    assert_same_run(out, whole, tolerance=0)
    found, target = weights(out), weights(whole)
    assert all(torch.equal(found[key], value) for key, value in target.items())


@pytest.mark.slow
def test_zero3_answers_in_step(words, make_recipe, tmp_path):
    """Answers of different lengths, and a last block that only one process has: all say what one process says."""
    shared = [
        *words,
        f"model.checkpoint={ROOT / 'models/demo_base'}",
        "train.max_steps=2",
        "train.save_steps=2",
        "selection.by=score",
        "decoding.max_new_tokens=40",
        "decoding.batch_size=5",
    ]
    run(make_recipe(*shared, "batch.size=8"), tmp_path / "one", silent)
    trained(deepspeed(tmp_path, 3), [*shared, "batch.size=4"], tmp_path / "two")
    one, two = (read_predictions(tmp_path / name / "validation/step-000002") for name in ("one", "two"))
    assert len(one) % 10 in range(1, 6)  # one process has a block more
    assert [(row.id, row.text) for row in two] == [(row.id, row.text) for row in one]
    assert len({row.tokens.new for row in two}) > 2
    scores = [
        [entry["eval_score"] for entry in history(tmp_path / name) if "eval_score" in entry] for name in ("one", "two")
    ]
    assert scores[1] == pytest.approx(scores[0])


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["ddp", "zero3"])
def test_one_process_that_fails_ends_all(sharding, words, phantom_release, make_recipe, tmp_path):
    """An image that only the second process reads, in the first step, is cut short."""
    shutil.copytree(phantom_release, tmp_path / "release")
    prepare_data("scintiground", tmp_path / "release", tmp_path / "data")
    overrides = [*words, f"data.dataset={tmp_path / 'data'}", "data.validation=null", "batch.size=4"]
    prepared = prepare(make_recipe(*overrides), silent)
    schedule = prepared.schedule
    schedule.processes, schedule.per_step = 2, 8
    step = schedule.epoch(0)[0]
    first, second = (
        {image.path for micro in part for i in micro.samples for image in prepared.train.records[i].images}
        for part in step.parts
    )
    victim = image_root(tmp_path / "data") / min(second - first)
    victim.write_bytes(victim.read_bytes()[:100])
    how = DDP if sharding == "ddp" else deepspeed(tmp_path, 3)
    status, printed = launch(how, overrides, tmp_path / "out")
    assert status != 0
    assert "DataError" in printed
    assert victim.name in printed
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.fixture
def started(monkeypatch):
    """Pretends that the processes were started so and so."""

    def start(sharding, *, device="cuda", config="zero3.json", saved="FULL_STATE_DICT"):
        monkeypatch.setattr(launching, "current_launch", lambda: Launch(2, sharding))
        monkeypatch.setattr(launching, "uses_fsdp", lambda: sharding == "fsdp")
        monkeypatch.setattr(launching.process_state(), "device", torch.device(device))
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(ROOT / "recipes/deepspeed" / config))
        monkeypatch.setenv("FSDP_STATE_DICT_TYPE", saved)

    return start


MUON = ("adapter.kind=full", "train.optimizer=muon")


@pytest.mark.parametrize(
    ("sharding", "overrides", "where"),
    [
        ("zero3", MUON, "train.optimizer"),
        ("zero2", MUON, "train.optimizer"),
        ("fsdp", MUON, "train.optimizer"),
        ("zero3", ("model.quantization=nf4",), "model.quantization"),
        ("fsdp", ("model.quantization=nf4",), "model.quantization"),
        ("fsdp", ("selection.by=score",), "selection.by"),
    ],
)
def test_what_cannot_work_is_refused_by_name(sharding, overrides, where, started, make_recipe):
    started(sharding)
    with pytest.raises(RecipeError, match=where) as caught:
        check_launch(make_recipe(*overrides))
    assert caught.value.where == where
    assert caught.value.fix


def test_what_can_work_is_not_refused(started, make_recipe):
    for sharding, overrides in (
        ("zero3", ("selection.by=score",)),
        ("zero2", ("model.quantization=nf4",)),
        ("fsdp", ()),
    ):
        started(sharding)
        check_launch(make_recipe(*overrides))


def test_a_launch_that_would_save_shards_is_refused(started, make_recipe, tmp_path, monkeypatch):
    started("fsdp", saved="SHARDED_STATE_DICT")
    with pytest.raises(RecipeError, match="save shards"):
        check_launch(make_recipe())
    started("zero3")
    settings = json.loads((ROOT / "recipes/deepspeed/zero3.json").read_text())
    del settings["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"]
    (tmp_path / "zero3.json").write_text(json.dumps(settings))
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(tmp_path / "zero3.json"))
    with pytest.raises(RecipeError, match="save shards"):
        check_launch(make_recipe())


def test_a_cpu_is_told_what_needs_a_gpu(started, make_recipe):
    started("fsdp", device="cpu")
    with pytest.raises(RecipeError, match="FSDP needs GPUs"):
        check_launch(make_recipe())
    started("zero3", device="cpu")
    with pytest.raises(RecipeError, match="needs a GPU"):
        check_launch(make_recipe("train.precision=bf16"))
