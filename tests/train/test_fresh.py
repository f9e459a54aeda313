"""`--fresh`: a new start that deletes nothing."""

from __future__ import annotations

import shutil
import sys

import pytest
import torch

from benchmarks.errors import DataError
from benchmarks.locking import locked
from recipes.errors import RecipeError, UserError
from tests.train.runs import Stopped, silent, tear, weights
from train import __main__ as command
from train import run as train_run
from train.resume import set_aside
from train.run import run

SMALL = ("batch.size=2", "data.validation=null", "train.max_steps=3", "train.save_steps=1")


@pytest.fixture(scope="module")
def finished(make_recipe, tmp_path_factory):
    """A finished run and its recipe."""
    recipe, out = make_recipe(*SMALL), tmp_path_factory.mktemp("finished") / "run"
    run(recipe, out, silent)
    return recipe, out


@pytest.fixture
def half(make_recipe, tmp_path):
    """A run stopped while it wrote its second checkpoint."""
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        tear(patch, torch, "save", 1, "checkpoint-2/optimizer.pt")
        with pytest.raises(Stopped):
            run(make_recipe(*SMALL), out, silent)
    return out


def content(folder):
    """Path -> bytes of everything below a folder; the lock is empty and does not count."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_a_new_start_keeps_the_old_run_which_may_still_be_continued(half, finished, make_recipe):
    """Also with another recipe; the second old run gets the next number."""
    recipe, straight = finished
    before, lines = content(half), []
    other = make_recipe(*SMALL, "train.seed=1")
    with pytest.raises(RecipeError, match=r"recipe.train.seed: 0 -> 1") as error:
        run(other, half, silent)
    assert "--fresh" in error.value.fix
    run(other, half, lines.append, fresh=True)
    old = half.with_name("run.old-1")
    assert f"the run in {half} is now {old}" in lines
    assert not [line for line in lines if line.startswith("continuing")]
    assert content(old) == before
    assert not same(weights(half / "model"), weights(straight / "model"))

    run(recipe, half, lines.append, fresh=True)
    assert half.with_name("run.old-2").is_dir()
    assert content(old) == before
    assert same(weights(half / "model"), weights(straight / "model"))

    run(recipe, old, lines.append)
    assert lines.count("continuing from checkpoint-1") == 1
    assert same(weights(old / "model"), weights(straight / "model"))


def test_a_finished_run_is_trained_anew_by_the_command(finished, tmp_path, monkeypatch, capsys):
    recipe, straight = finished
    out = shutil.copytree(straight, tmp_path / "run")
    words = [f"data.dataset={recipe.data.dataset}", f"model.checkpoint={recipe.model.checkpoint}"]
    words += ["batch.workers=0", "train.max_steps=1", "data.validation=null", "--out", str(out), "--fresh"]
    monkeypatch.setattr(sys, "argv", ["train", "demo/lora", *words])
    assert command.main() == 0
    printed = capsys.readouterr().out
    assert f"the run in {out} is now {tmp_path / 'run.old-1'}" in printed
    assert f"saved {out / 'model'}" in printed
    assert content(tmp_path / "run.old-1") == content(straight)


def test_a_run_that_is_being_written_is_not_moved(finished, tmp_path):
    recipe, straight = finished
    out = shutil.copytree(straight, tmp_path / "run")
    with locked(out, needed=True), pytest.raises(DataError, match="another process is writing"):
        run(recipe, out, silent, fresh=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert content(out) == content(straight)


def test_a_mistake_in_the_recipe_moves_nothing(finished, make_recipe, tmp_path):
    _, straight = finished
    out = shutil.copytree(straight, tmp_path / "run")
    with pytest.raises(UserError, match="images are never cut"):
        run(make_recipe(*SMALL, "batch.max_length=20"), out, silent, fresh=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("adapter.init", ["adapter.init={run}"]),
        ("vision_cache_dir", ["vision_cache=disk", "vision_cache_dir={run}/kept"]),
    ],
)
def test_what_the_new_run_reads_is_not_moved_away(field, words, finished, make_recipe, tmp_path):
    _, straight = finished
    out = shutil.copytree(straight, tmp_path / "run")
    recipe = make_recipe(*SMALL, *(word.format(run=out) for word in words))
    with pytest.raises(RecipeError, match="which the new run reads") as error:
        run(recipe, out, silent, fresh=True)
    assert error.value.where == field
    assert (out / "manifest.json").is_file()


def test_a_folder_without_a_run_stays_where_it_is(finished, tmp_path):
    recipe, _ = finished
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    assert set_aside(tmp_path / "run", recipe) is None
    assert set_aside(tmp_path / "nothing", recipe) is None
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_only_the_main_process_renames_and_the_others_wait(finished, tmp_path, monkeypatch):
    recipe, straight = finished
    out = shutil.copytree(straight, tmp_path / "run")
    waited = []

    class Second:
        is_main_process = False

        def wait_for_everyone(self):
            waited.append(sorted(path.name for path in tmp_path.iterdir()))

    monkeypatch.setattr(train_run, "process_state", Second)
    train_run._start_afresh(recipe, out, silent)
    assert waited == [["run"]]
