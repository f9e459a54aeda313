"""Runs with kept vision features: the same bits wherever they are kept, and nothing is encoded twice."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest
from PIL import Image as PILImage
from safetensors.torch import load_file

import benchmarks.images
import train.disk
import train.run
from benchmarks.dataset import read_records
from benchmarks.predictions import PREDICTIONS
from recipes.errors import UserError
from tests.groups import grouped_records, write_groups
from tests.sharding import DDP, assert_same_run, history, trained, weights
from tests.train.runs import AtStep, Stopped, silent, stop
from train.disk import cache_bytes, checkpoint_bytes
from train.prepare import prepare
from train.run import run
from train.trainer import TrainingError

# Questions about each image set; a set of 0 is one question without images, which PaliGemma does not know.
SIZES = {"qwen3_vl": (3, 1, 2, 0, 2, 1), "paligemma": (3, 1, 2, 2)}
Usage = namedtuple("Usage", "total used free")
NOTHING_KEPT = ("vision_cache=memory", "vision_cache_gib=1.0e-9")
FAMILIES = tuple(SIZES)


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Family -> training samples of some image sets, and 3 validation samples of two."""
    folder = tmp_path_factory.mktemp("groups")
    return {
        family: write_groups(
            folder / family, [*grouped_records(sizes, images=2), *grouped_records((2, 1), images=2, split="val")]
        )
        for family, sizes in SIZES.items()
    }


@pytest.fixture
def data_of(groups, tmp_path):
    """A copy of a family's data, to be changed and to keep features in."""

    def make(family="qwen3_vl"):
        return shutil.copytree(groups[family], tmp_path / "data")

    return make


@pytest.fixture
def recipe_of(make_recipe, make_paligemma_recipe):
    """A recipe of two epochs of a family."""

    def make(family, data, *overrides):
        return {"qwen3_vl": make_recipe, "paligemma": make_paligemma_recipe}[family](
            "prompt.template=plain",
            "codec=plain",
            f"data.dataset={data}",
            "batch.size=3",
            "batch.workers=0",
            "train.learning_rate=1.0e-3",
            "train.max_steps=null",
            "train.epochs=2",
            "train.save_steps=100",
            "train.validate_steps=2",
            "train.log_steps=1",
            "adapter.dropout=0.0",
            *(("canvas.order=[]", "canvas.missing=leave_out") if family == "paligemma" else ()),
            *overrides,
        )

    return make


@pytest.fixture
def calls(monkeypatch):
    """Names what happens: `encode` for each call of a vision tower, `open` for each image that is decoded."""
    from transformers.models.paligemma.modeling_paligemma import PaliGemmaModel
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

    seen = []

    def note(owner, name, what):
        real = getattr(owner, name)

        def noted(*arguments, **keywords):
            seen.append(what)
            return real(*arguments, **keywords)

        monkeypatch.setattr(owner, name, noted)

    note(Qwen3VLModel, "get_image_features", "encode")
    note(PaliGemmaModel, "get_image_features", "encode")
    note(benchmarks.images, "open_image", "open")
    return seen


def same(a, b):
    """Every logged number and every weight, bit for bit."""
    # The last entry sums up what a process did, from where it continued.
    lines = [[entry for entry in history(out) if "train_runtime" not in entry] for out in (a, b)]
    found, wanted = weights(a), weights(b)
    return lines[0] == lines[1] and found.keys() == wanted.keys() and all(found[k].equal(wanted[k]) for k in wanted)


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_is_the_same_bit_for_bit_wherever_features_are_kept(family, shared, data_of, recipe_of, tmp_path):
    data = data_of(family)
    share = f"batch.share_images={str(shared).lower()}"
    ways = {
        "none": NOTHING_KEPT,
        "memory": ("vision_cache=memory",),
        "disk": ("vision_cache=disk",),
        "disk again": ("vision_cache=disk",),
        "workers": ("vision_cache=memory", "batch.workers=2"),
    }
    for name, words in ways.items():
        run(recipe_of(family, data, share, *words), tmp_path / name, silent)
    assert list((data / "vision_cache").rglob("*.safetensors"))
    assert all(same(tmp_path / name, tmp_path / "none") for name in ways)
    run(recipe_of(family, data, share), tmp_path / "off", silent)
    assert_same_run(tmp_path / "none", tmp_path / "off", tolerance=1e-5)


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_image_set_is_opened_and_encoded_once_in_all_epochs(family, kind, data_of, recipe_of, calls, tmp_path):
    data = data_of(family)
    records = [record for split in ("train", "val") for record in read_records(data, split)]
    sets = {record.images for record in records}
    run(recipe_of(family, data, f"vision_cache={kind}"), tmp_path / "run", silent)
    shown = sum(bool(images) for images in sets)
    # The text without images is a set of its own, the black one, where it is alone in a pass.
    assert shown <= calls.count("encode") <= len(sets)
    assert calls.count("open") == len({image.path for images in sets for image in images})
    if kind == "disk":
        calls.clear()
        run(recipe_of(family, data, "vision_cache=disk", "train.seed=5"), tmp_path / "other", silent)
        assert calls.count("encode") <= 1  # the black set
        assert not calls.count("open")


def test_worker_processes_hand_over_what_is_kept(data_of, recipe_of, calls, tmp_path):
    data = data_of()
    sets = {record.images for split in ("train", "val") for record in read_records(data, split)}
    for kind in ("memory", "disk"):
        calls.clear()
        words = (f"vision_cache={kind}", "batch.workers=2", "train.epochs=6")
        run(recipe_of("qwen3_vl", data, *words), tmp_path / kind, silent)
        assert len(sets) - 1 <= calls.count("encode") <= len(sets)
        assert not calls.count("open")  # here


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_an_image_that_was_changed_is_encoded_anew(kind, data_of, recipe_of, tmp_path):
    data = data_of()
    run(recipe_of("qwen3_vl", data, f"vision_cache={kind}"), tmp_path / "before", silent)
    file = sorted(data.glob("slices/train0/*.png"))[0]
    PILImage.new("L", (64, 64), 255).save(file)
    run(recipe_of("qwen3_vl", data, f"vision_cache={kind}"), tmp_path / "after", silent)
    run(recipe_of("qwen3_vl", data, *NOTHING_KEPT), tmp_path / "none", silent)
    assert same(tmp_path / "after", tmp_path / "none")
    assert not same(tmp_path / "after", tmp_path / "before")


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_run_that_was_stopped_ends_with_the_same_weights(kind, data_of, recipe_of, monkeypatch, tmp_path):
    data = data_of()
    words = (f"vision_cache={kind}", "train.save_steps=1", "adapter.dropout=0.1")
    run(recipe_of("qwen3_vl", data, *words), tmp_path / "straight", silent)
    shutil.rmtree(data / "vision_cache", ignore_errors=True)
    real = train.run.callbacks
    for step in (2, 5):
        with monkeypatch.context() as patch:
            patch.setattr(train.run, "callbacks", lambda *a, at=step, **k: [*real(*a, **k), AtStep(at, stop)])
            with pytest.raises(Stopped):
                run(recipe_of("qwen3_vl", data, *words), tmp_path / "resumed", silent)
    run(recipe_of("qwen3_vl", data, *words), tmp_path / "resumed", silent)
    assert same(tmp_path / "resumed", tmp_path / "straight")


def test_damaged_files_are_computed_anew_in_the_middle_of_a_run(data_of, recipe_of, capsys, tmp_path):
    data = data_of()
    run(recipe_of("qwen3_vl", data, "vision_cache=disk"), tmp_path / "first", silent)
    files = sorted((data / "vision_cache").rglob("*.safetensors"))
    for file in files[:2]:
        file.write_bytes(file.read_bytes()[:-7])
    run(recipe_of("qwen3_vl", data, "vision_cache=disk"), tmp_path / "second", silent)
    said = capsys.readouterr().err
    assert all(said.count(str(file)) == 1 for file in files[:2])
    assert same(tmp_path / "second", tmp_path / "first")
    run(recipe_of("qwen3_vl", data, "vision_cache=disk"), tmp_path / "third", silent)
    assert "WARNING" not in capsys.readouterr().err


def test_a_folder_of_ones_own_and_one_that_cannot_be_written(data_of, recipe_of, tmp_path):
    data = data_of()
    words = ("vision_cache=disk", f"vision_cache_dir={tmp_path / 'features'}")
    run(recipe_of("qwen3_vl", data, *words), tmp_path / "run", silent)
    assert list((tmp_path / "features").rglob("*.safetensors"))
    assert not (data / "vision_cache").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="the vision cache cannot be written"):
        run(recipe_of("qwen3_vl", data, *words[:1], f"vision_cache_dir={tmp_path / 'file'}"), tmp_path / "b", silent)


def test_the_bound_spares_what_fits_and_changes_nothing_else(data_of, recipe_of, calls, capsys, tmp_path):
    data = data_of()
    run(recipe_of("qwen3_vl", data, "vision_cache=disk"), tmp_path / "all", silent)
    every, sizes = (
        calls.count("encode"),
        [file.stat().st_size for file in (data / "vision_cache").rglob("*.safetensors")],
    )
    shutil.rmtree(data / "vision_cache")
    calls.clear()
    gib = (max(sizes) * 2 + 10) / 2**30
    run(recipe_of("qwen3_vl", data, "vision_cache=disk", f"vision_cache_gib={gib}"), tmp_path / "some", silent)
    assert same(tmp_path / "some", tmp_path / "all")
    assert calls.count("encode") > every
    assert capsys.readouterr().err.count("vision_cache_gib") == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_room_for_features_is_asked_for_before_the_first_step(family, data_of, recipe_of, monkeypatch, tmp_path):
    data = data_of(family)
    recipe = recipe_of(family, data, "vision_cache=disk")
    prepared = prepare(recipe, silent)
    expected = cache_bytes(prepared, tmp_path)
    needed = 4 * checkpoint_bytes(prepared) + expected
    with monkeypatch.context() as patch:
        patch.setattr(train.disk.shutil, "disk_usage", lambda path: Usage(2 * needed, needed + 1, needed - 1))
        with pytest.raises(TrainingError, match="and 0 MiB of vision features") as error:
            run(recipe, tmp_path / "run", silent)
        assert "vision_cache_gib" in error.value.fix
        patch.setattr(train.disk.shutil, "disk_usage", lambda path: Usage(2 * needed, needed, needed))
        run(recipe, tmp_path / "run", silent)
    kept = list((data / "vision_cache").rglob("*.safetensors"))
    assert expected == sum(values.nbytes for file in kept for values in load_file(file).values())
    assert cache_bytes(prepare(recipe, silent), tmp_path) == 0
    assert cache_bytes(prepare(recipe_of(family, data, "vision_cache=memory"), silent), tmp_path) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_two_processes_train_as_one(kind, data_of, recipe_of, tiny, tmp_path):
    data = data_of()
    run(recipe_of("qwen3_vl", data, "vision_cache=memory", "batch.size=4"), tmp_path / "one", silent)
    trained(DDP, words_of(recipe_of("qwen3_vl", data, f"vision_cache={kind}", "batch.size=2")), tmp_path / "two")
    assert_same_run(tmp_path / "two", tmp_path / "one")


def words_of(recipe):
    """A recipe's values as overrides."""
    import yaml

    sections = recipe.model_dump(mode="json")
    flat = {}
    for key, value in sections.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": each for name, each in value.items()}
        else:
            flat[key] = value
    return [f"{key}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}" for key, value in flat.items()]


def test_features_under_autocast_are_those_of_no_cache(data_of, recipe_of, tmp_path):
    data = data_of()
    words = ("model.dtype=bfloat16", "train.precision=bf16", "batch.share_images=true")
    for name, kept in (("none", NOTHING_KEPT), ("disk", ("vision_cache=disk",)), ("memory", ("vision_cache=memory",))):
        run(recipe_of("qwen3_vl", data, *words, *kept), tmp_path / name, silent)
    assert same(tmp_path / "disk", tmp_path / "none")
    assert same(tmp_path / "memory", tmp_path / "none")


def test_full_fine_tuning_of_the_language_model_keeps_features(data_of, recipe_of, tmp_path):
    data = data_of()
    words = ("adapter.kind=full", "freeze=[vision,projector]", "train.gradient_checkpointing=true")
    run(recipe_of("qwen3_vl", data, *words, *NOTHING_KEPT), tmp_path / "none", silent)
    run(recipe_of("qwen3_vl", data, *words, "vision_cache=disk"), tmp_path / "disk", silent)
    assert same(tmp_path / "disk", tmp_path / "none")


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_during_validation_are_the_same(family, kind, phantom_data, recipe_of, tmp_path):
    data = shutil.copytree(phantom_data, tmp_path / "phantom")
    if family == "qwen3_vl":
        own = ("prompt.template=scintiground", "codec=scintiground_json")
    else:
        own = ("prompt.template=scintiground_short", "codec=loc_tokens")
    words = (*own, "selection.by=score", "selection.profile=corrected", "train.epochs=null", "train.max_steps=2")
    for name, kept in (("none", NOTHING_KEPT), ("kept", (f"vision_cache={kind}",))):
        run(recipe_of(family, data, *words, *kept), tmp_path / name, silent)
    assert same(tmp_path / "kept", tmp_path / "none")
    steps = sorted(path.relative_to(tmp_path / "none") for path in (tmp_path / "none").rglob(PREDICTIONS))
    assert steps
    assert all((tmp_path / "kept" / step).read_bytes() == (tmp_path / "none" / step).read_bytes() for step in steps)
