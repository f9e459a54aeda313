"""What goes wrong in a run's folder: the message, and that nothing good is lost by it."""

from __future__ import annotations

import errno
import json
import pickle
import resource
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from recipes.errors import UserError
from tests.train.runs import AtStep, Stopped, silent, stop, weights
from train import callbacks, disk
from train.checkpoints import SEAL, check_sealed, newest_checkpoint, rotate, seal
from train.disk import check_room, checkpoint_bytes
from train.prepare import prepare
from train.run import run
from train.trainer import GroundedTrainer, TrainingError

SMALL = ("batch.size=2", "data.validation_limit=2", "train.max_steps=3", "train.save_steps=1", "train.log_steps=10")


@pytest.fixture(scope="module")
def recipe(make_recipe):
    """Three steps, a checkpoint after each, two kept."""
    return make_recipe(*SMALL)


@pytest.fixture(scope="module")
def straight(recipe, tmp_path_factory):
    """The run without a fault."""
    out = tmp_path_factory.mktemp("straight") / "run"
    run(recipe, out, silent)
    return out


@pytest.fixture(scope="module")
def half(recipe, tmp_path_factory):
    """A run stopped in its third step, with two checkpoints."""
    out = tmp_path_factory.mktemp("half") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks, "StopOnNaN", lambda: AtStep(3, stop))
        with pytest.raises(Stopped):
            run(recipe, out, silent)
    return out


@pytest.fixture
def copy(half, tmp_path):
    """A copy of the stopped run, to be damaged."""
    return shutil.copytree(half, tmp_path / "run")


def ends_as(straight, recipe, out):
    """Whether the run goes on from checkpoint-2 and ends with the weights of the run without a fault."""
    lines: list[str] = []
    run(recipe, out, lines.append)
    got, expected = weights(out / "model"), weights(straight / "model")
    return "continuing from checkpoint-2" in lines and all(torch.equal(got[key], expected[key]) for key in expected)


# Pickles


class Mark:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def others(checkpoint):
    """All files of a checkpoint but the weights."""
    return sorted(
        path for path in checkpoint.rglob("*") if path.is_file() and path.suffix != ".safetensors" and path.name != SEAL
    )


def test_a_pickle_in_the_place_of_any_file_is_refused(half, tmp_path):
    """Pitfall 32."""
    marker = tmp_path / "marker"
    bomb = pickle.dumps(Mark(marker), protocol=2)
    names = [path.relative_to(half / "checkpoints").as_posix() for path in others(half / "checkpoints/checkpoint-2")]
    assert {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= {
        Path(name).name for name in names
    }
    for number, name in enumerate([*names, f"checkpoint-2/{SEAL}"]):
        checkpoints = shutil.copytree(half / "checkpoints", tmp_path / str(number))
        (checkpoints / name).write_bytes(bomb)
        with pytest.raises(UserError) as error:
            newest_checkpoint(checkpoints)
        assert Path(name).name in str(error.value)
    assert not marker.exists()
    pickle.loads(bomb)  # the proof that it would have worked
    assert marker.exists()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"])
def test_a_pickle_is_refused_although_the_list_of_files_was_made_to_fit(name, recipe, copy, tmp_path):
    """Pitfall 32: the list guards against damage; what is unpickled, and how, guards against malice."""
    marker, checkpoint = tmp_path / "marker", copy / "checkpoints/checkpoint-2"
    (checkpoint / name).write_bytes(pickle.dumps(Mark(marker), protocol=2))
    seal(checkpoint)
    with pytest.raises(TrainingError, match=r"other than tensors and|not a state of the Trainer") as error:
        run(recipe, copy, silent)
    assert "checkpoint-2" in error.value.where
    assert not marker.exists()


def test_the_trainers_own_pickle_is_never_read(recipe, straight, copy, tmp_path):
    """Pitfall 32."""
    marker, checkpoint = tmp_path / "marker", copy / "checkpoints/checkpoint-2"
    (checkpoint / "training_args.bin").write_bytes(pickle.dumps(Mark(marker), protocol=2))
    seal(checkpoint)
    assert ends_as(straight, recipe, copy)
    assert not marker.exists()


# Half-written and damaged checkpoints


def test_a_checkpoint_without_a_seal_is_passed_over(recipe, straight, copy):
    """Also if every file of the Trainer is there, as when a kill came before they reached the disk."""
    torn = shutil.copytree(copy / "checkpoints/checkpoint-2", copy / "checkpoints/checkpoint-3")
    (torn / SEAL).unlink()
    assert ends_as(straight, recipe, copy)


@pytest.mark.parametrize("name", ["optimizer.pt", "adapter_model.safetensors", "rng_state.pth"])
def test_a_checkpoint_cut_after_it_was_sealed_is_refused_by_file(name, copy):
    path = copy / "checkpoints/checkpoint-2" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TrainingError, match=f"checkpoint-2 is not as it was written: {name} has changed"):
        newest_checkpoint(copy / "checkpoints")


def test_one_changed_byte_a_missing_and_a_new_file_are_named(copy):
    checkpoint = copy / "checkpoints/checkpoint-2"
    data = bytearray((checkpoint / "optimizer.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (checkpoint / "optimizer.pt").write_bytes(data)
    (checkpoint / "scheduler.pt").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(b"")
    (checkpoint / ".directory").touch()  # left by a desktop
    with pytest.raises(TrainingError) as error:
        newest_checkpoint(copy / "checkpoints")
    assert "optimizer.pt has changed; pytorch_model.bin is not a file of it; scheduler.pt is missing" in str(
        error.value
    )
    assert "remove it to continue from the checkpoint before" in str(error.value)
    shutil.rmtree(checkpoint)
    assert newest_checkpoint(copy / "checkpoints") == copy / "checkpoints/checkpoint-1"


def test_a_cut_file_is_said_although_the_list_of_files_was_made_to_fit(recipe, copy):
    """As with a file too large to be hashed."""
    path = copy / "checkpoints/checkpoint-2/optimizer.pt"
    path.write_bytes(path.read_bytes()[:-100])
    seal(path.parent)
    with pytest.raises(TrainingError, match="a file of the checkpoint is cut or damaged: ") as error:
        run(recipe, copy, silent)
    assert "checkpoint-2" in error.value.where


def test_a_missing_best_checkpoint_is_refused(copy):
    """Otherwise the last weights would quietly take the place of the best ones."""
    checkpoint = copy / "checkpoints/checkpoint-2"
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    (checkpoint / "trainer_state.json").write_text(json.dumps(state | {"best_global_step": 1}))
    seal(checkpoint)
    assert newest_checkpoint(copy / "checkpoints") == checkpoint
    (copy / "checkpoints/checkpoint-1" / SEAL).unlink()
    with pytest.raises(TrainingError, match="refers to the best checkpoint checkpoint-1, which is missing"):
        newest_checkpoint(copy / "checkpoints")


@pytest.mark.parametrize(
    ("keep", "best", "left"), [(1, None, {9}), (1, 2, {2, 9}), (2, 2, {2, 9}), (3, 2, {2, 4, 9}), (9, 4, {2, 4, 9})]
)
def test_the_newest_and_the_best_stay(keep, best, left, tmp_path):
    """Steps in order of number, not of name or time; torn ones go."""
    for step in (9, 10, 2, 4):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "file").touch()
        if step != 10:
            seal(tmp_path / f"checkpoint-{step}")
    (tmp_path / "torn-checkpoint-3").mkdir()
    rotate(tmp_path, keep=keep, best=best)
    assert {path.name for path in tmp_path.iterdir()} == {f"checkpoint-{step}" for step in left}


# Mixed adapters


@pytest.mark.parametrize("override", ["adapter.rank=4", "train.seed=1"])
def test_another_runs_adapter_in_a_checkpoint_is_refused(override, make_recipe, copy, tmp_path):
    """Of another rank, or of a run that differs in nothing that shapes could show."""
    other = run(make_recipe(*SMALL, override, "train.max_steps=1"), tmp_path / "other", silent)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        shutil.copy(other / name, copy / "checkpoints/checkpoint-2")
    with pytest.raises(TrainingError, match=r"adapter_model\.safetensors has changed"):
        newest_checkpoint(copy / "checkpoints")


def test_changed_base_weights_under_a_run_are_refused(make_recipe, tiny, tmp_path):
    from safetensors.torch import load_file, save_file

    base = shutil.copytree(tiny, tmp_path / "base")
    recipe = make_recipe(*SMALL, f"model.checkpoint={base}", "train.max_steps=1")
    run(recipe, tmp_path / "run", silent)
    changed = load_file(base / "model.safetensors")
    next(iter(changed.values())).view(-1)[0] += 1
    save_file(changed, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="holds another run: base_weights_hash: "):
        run(recipe, tmp_path / "run", silent)


# Disk


@pytest.mark.parametrize("failing", ["adapter_model.safetensors", "optimizer.pt"])
def test_a_write_that_fails_in_the_middle_of_a_file_is_a_message(failing, recipe, straight, tmp_path, monkeypatch):
    """Pitfall 33: the system refuses every byte beyond half of the file's size."""
    limit = (straight / "checkpoints/checkpoint-3" / failing).stat().st_size // 2
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        fill = AtStep(3, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard)))
        patch.setattr(callbacks, "StopOnNaN", lambda: fill)
        try:
            with pytest.raises(TrainingError, match="the run cannot be written: ") as error:
                run(recipe, out, silent)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "continues from the newest whole checkpoint" in error.value.fix
    assert (out / "checkpoints/checkpoint-3").is_dir()
    for step in (1, 2):
        check_sealed(out / f"checkpoints/checkpoint-{step}")
    assert ends_as(straight, recipe, out)


Usage = namedtuple("Usage", "total used free")


def test_too_small_a_disk_is_said_before_the_first_step(recipe, tmp_path, monkeypatch):
    """Pitfall 33: two checkpoints that stay, one being written, and the model."""
    needed = 4 * checkpoint_bytes(prepare(recipe, silent))
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: Usage(2 * needed, needed + 1, needed - 1))
    with pytest.raises(
        TrainingError, match=r"needs up to \d+ MiB more on the disk \(4 checkpoints of \d+ MiB\)"
    ) as error:
        run(recipe, tmp_path / "run", silent)
    assert "lower train.keep_checkpoints" in error.value.fix
    assert not (tmp_path / "run/checkpoints").exists()


def test_checkpoints_that_are_there_need_no_more_room(recipe, copy, monkeypatch):
    prepared = prepare(recipe, silent)
    present = sum(path.stat().st_size for path in (copy / "checkpoints").rglob("*") if path.is_file())
    needed = 4 * checkpoint_bytes(prepared) - present
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: Usage(2 * needed, needed, needed))
    check_room(prepared, copy)
    shutil.rmtree(copy / "checkpoints/checkpoint-1")
    torn = (copy / "checkpoints/checkpoint-2").rename(copy / "checkpoints/torn-checkpoint-2")
    with pytest.raises(TrainingError) as error:
        check_room(prepared, copy)
    assert f"remove {torn}" in error.value.fix


@pytest.mark.parametrize("words", [(), ("adapter.kind=full", "freeze=[vision]")])
def test_a_checkpoint_is_no_larger_than_estimated(words, make_recipe, tmp_path):
    recipe = make_recipe(*SMALL, *words, "train.max_steps=1", "adapter.rank=64")
    run(recipe, tmp_path / "run", silent)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "run/checkpoints/checkpoint-1").iterdir()}
    tensors = sum(size for name, size in sizes.items() if name.endswith(".safetensors") or name == "optimizer.pt")
    estimate = checkpoint_bytes(prepare(recipe, silent))
    assert sum(sizes.values()) <= estimate
    assert tensors == pytest.approx(estimate - 2**24, rel=0.15)


@pytest.mark.parametrize(
    "error", [OSError(errno.EROFS, "Read-only file system"), PermissionError(errno.EACCES, "denied")]
)
def test_a_folder_that_may_not_be_written_is_said_before_the_first_step(error, recipe, tmp_path, monkeypatch):
    def refuse(path, data):
        raise type(error)(error.errno, error.strerror, str(path))

    monkeypatch.setattr(disk, "write_atomic", refuse)
    with pytest.raises(TrainingError, match=f"the run cannot be written: .*{error.strerror}") as raised:
        run(recipe, tmp_path / "run", silent)
    assert "mend permissions" in raised.value.fix
    assert str(tmp_path / "run") in raised.value.where
    assert not (tmp_path / "run/checkpoints").exists()


def test_a_file_in_the_place_of_the_folder_is_said(recipe, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="the run cannot be written: "):
        run(recipe, tmp_path / "file/run", silent)


# Losses that are no numbers


def spoil(patch, step, change):
    """Changes the loss of a step."""
    real = GroundedTrainer.compute_loss

    def spoilt(self, model, inputs, *arguments, **keywords):
        loss = real(self, model, inputs, *arguments, **keywords)
        return change(loss, model) if self.state.global_step + 1 == step else loss

    patch.setattr(GroundedTrainer, "compute_loss", spoilt)


def to_nan(loss, model):
    return loss * float("nan")


def to_nan_gradients(loss, model):
    """A finite loss whose gradients are not: the slope of a square root at 0."""
    return loss + sum(
        (parameter * 0).sum().sqrt() for parameter in model.parameters() if parameter.requires_grad and parameter.ndim
    )


@pytest.mark.parametrize(
    ("change", "every", "text"),
    [
        (to_nan, 1, "loss is nan at step 2"),
        (to_nan, 3, "loss is nan at step 3"),
        (to_nan_gradients, 1, "numbers that are not finite after step 2"),
        (to_nan_gradients, 3, "loss is nan at step 3"),
    ],
)
def test_no_checkpoint_holds_what_a_bad_step_made(change, every, text, make_recipe, tmp_path, monkeypatch):
    """The second step is bad; the next log line would come after the tenth, no validation shows it."""
    recipe = make_recipe(*SMALL, f"train.save_steps={every}", "data.validation=null")
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        spoil(patch, 2, change)
        with pytest.raises(TrainingError, match=text) as error:
            run(recipe, out, silent)
    assert "the checkpoints written before are kept" in error.value.fix
    assert [path.parent.name for path in out.glob(f"checkpoints/*/{SEAL}")] == ["checkpoint-1"][: every == 1]
    run(recipe, out, silent)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(out / "model").values())
