"""Runs with a model on a server: many calls at a time, any interruption, what is refused, and the scores at the end."""

import itertools
import json
import os
import sys
import threading
import time

import pytest

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.predictions import MANIFEST, PREDICTIONS, Prediction, read_manifest, read_predictions
from eval.__main__ import main as score
from infer.__main__ import main
from infer.run import run, run_all
from recipes.errors import RecipeError, UserError, run_command
from tests.chat_server import chat_server, failed, question, said
from tests.infer.served_data import KEY, RECIPE, request, write_sgmri
from tests.launching import kill_tree, start

COUNT = 22


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Twenty questions about a slice, two about a volume."""
    return write_sgmri(tmp_path_factory.mktemp("sgmri"), COUNT - 2)


def echo(body):
    """A reply that depends on the question alone."""
    text = question(body)
    return said(f"Yes. {text}", usage=(len(text), 9))


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Bytes of an uninterrupted run, one call at a time."""
    with chat_server(echo) as server:
        folder = run(request(server, data, tmp_path_factory.mktemp("whole") / "out"))
    return (folder / PREDICTIONS).read_bytes()


def content(folder):
    return (folder / PREDICTIONS).read_bytes()


def finished(out):
    """Ids of the rows that are in the parts, whole lines only."""
    lines = [line for path in out.glob("parts/*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    return {json.loads(line)["id"] for line in lines}


def questions_of(data, ids):
    return {record.question for record in read_records(data, "test") if record.id in ids}


def asked(bodies, wanted):
    """Which of the questions the calls asked."""
    return {text for text in wanted if any(text in question(body) for body in bodies)}


@pytest.mark.parametrize("threads", [2, 7, 40])
def test_many_calls_at_a_time_give_the_same_file(whole, data, tmp_path, threads):
    delays = itertools.cycle([0.0, 0.03, 0.01, 0.05])

    def answer(body):
        time.sleep(next(delays))
        return echo(body)

    with chat_server(answer) as server:
        folder = run(request(server, data, tmp_path / "out", threads=threads))
    assert content(folder) == whole
    assert len(server.calls) == COUNT


@pytest.mark.parametrize("threads", [1, 4])
def test_a_run_that_was_stopped_asks_only_what_is_missing(whole, data, tmp_path, threads):
    order = itertools.count()
    with chat_server(lambda body: echo(body) if next(order) < 9 else failed(401)) as server:
        with pytest.raises(UserError, match="refuses the key"):
            run(request(server, data, tmp_path / "out", threads=threads))
        assert len(server.calls) <= 9 + threads
        done = finished(tmp_path / "out")
        # Whatever was answered is kept, also what came in beside the refusal.
        assert len(done) == 9
        before = len(server.calls)
        server.answer = echo
        folder = run(request(server, data, tmp_path / "out", threads=threads))
        assert not asked(server.calls[before:], questions_of(data, done))
        assert len(server.calls) - before == COUNT - 9
        assert content(folder) == whole
        # Finished: nothing more is asked.
        run(request(server, data, tmp_path / "out"))
        assert len(server.calls) - before == COUNT - 9


def test_kill_9_loses_no_answer_that_was_written(whole, data, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def slow(body):
        time.sleep(0.1)
        return echo(body)

    with chat_server(slow) as server:
        words = ("m", "--engine", "openai", "--server", server.url, "--recipe", RECIPE, "--parallel", 3)
        process = start("infer", 1, *words, "--data", data, "--out", out)
        while len(finished(out)) < 5:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        kill_tree(process)
        assert not (out / MANIFEST).exists()
        done, before = finished(out), len(server.calls)
        server.answer = echo
        folder = run(request(server, data, out, threads=3))
        assert not asked(server.calls[before:], questions_of(data, done))
        assert len(server.calls) - before == COUNT - len(done)
    assert server.keys == [f"Bearer {KEY}"] * len(server.calls)
    assert content(folder) == whole


def test_two_runs_cannot_write_one_folder(data, tmp_path):
    reached, go = threading.Event(), threading.Event()

    def answer(body):
        reached.set()
        go.wait(timeout=60)
        return echo(body)

    with chat_server(answer) as server:
        first = threading.Thread(target=run, args=(request(server, data, tmp_path / "out", limit=2, seconds=60.0),))
        first.start()
        reached.wait(timeout=60)
        with pytest.raises(DataError, match="another process is writing"):
            run(request(server, data, tmp_path / "out", limit=2))
        go.set()
        first.join(timeout=60)
    assert len(read_predictions(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": "other"}, "weights: 'm' -> 'other'"),
        ({"url": "http://127.0.0.1:9/v1"}, "decoding.server"),
        ({"overrides": ("decoding.max_new_tokens=9",)}, "decoding.max_new_tokens: 4096 -> 9"),
        ({"overrides": ("prompt.template=sgmri",)}, "encoder_fingerprint"),
        ({"overrides": ("images.max_pixels=70000",)}, "encoder_fingerprint"),
        ({"control": "blank_image"}, "control"),
        ({"limit": 3}, "limit"),
    ],
)
def test_another_question_to_another_model_does_not_continue_a_run(data, tmp_path, change, field):
    with chat_server(echo) as server:
        run(request(server, data, tmp_path / "out", limit=2))
        with pytest.raises(DataError, match="other settings") as raised:
            run(request(server, data, tmp_path / "out", **({"limit": 2} | change)))
    assert field in str(raised.value)


def test_price_key_patience_and_number_of_calls_are_no_settings(whole, data, tmp_path):
    order = itertools.count()
    with chat_server(lambda body: echo(body) if next(order) < 4 else failed(403)) as server:
        with pytest.raises(UserError, match="refuses the key"):
            run(request(server, data, tmp_path / "out"))
        server.answer = echo
        other = {
            "price": (1.0, 2.0),
            "threads": 3,
            "retries": 1,
            "seconds": 9.0,
            "key": "another",
            "url": server.url + "/",
        }
        assert content(run(request(server, data, tmp_path / "out", **other))) == whole
    assert len(server.calls) == COUNT + 1


def test_the_manifest_tells_model_server_and_cost_and_no_secret(data, tmp_path):
    with chat_server(echo) as server:
        url = server.url.replace("http://", "http://user:password@")
        folder = run(request(server, data, tmp_path / "out", url=url, price=(2.5, 10.0), model="org/some-model"))
    manifest, rows = read_manifest(folder), read_predictions(folder)
    assert (manifest.name, manifest.engine, manifest.weights) == ("some-model", "openai", "org/some-model")
    assert manifest.recipe["model"]["checkpoint"] == "org/some-model"
    assert manifest.decoding == {"server": server.url, "temperature": 0, "max_new_tokens": 4096}
    prompt, new = (sum(getattr(row.tokens, name) for row in rows) for name in ("prompt", "new"))
    assert manifest.timing["dollars"] == pytest.approx((prompt * 2.5 + new * 10) / 1e6, abs=1e-6)
    assert "openai" in manifest.environment["versions"]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or not any(secret in path.read_bytes() for secret in (KEY.encode(), b"password")), (
            path
        )


def test_the_cost_covers_all_rows_of_a_continued_run_and_only_counted_ones(data, tmp_path):
    order = itertools.count()
    with chat_server(lambda body: said("Yes.", usage=(1000, 10)) if next(order) < 2 else failed(401)) as server:
        with pytest.raises(UserError):
            run(request(server, data, tmp_path / "out", price=(1.0, 1.0), limit=3))
        server.answer = lambda body: said("Yes.", usage=(1000, 10))
        manifest = read_manifest(run(request(server, data, tmp_path / "out", price=(1.0, 1.0), limit=3)))
        assert manifest.timing["dollars"] == pytest.approx(3030 / 1e6)
        server.answer = lambda body: said("Yes.", usage=None)
        manifest = read_manifest(run(request(server, data, tmp_path / "uncounted", price=(1.0, 1.0), limit=3)))
        assert "dollars" not in manifest.timing
        manifest = read_manifest(run(request(server, data, tmp_path / "free", limit=3)))
        assert not any("dollars" in name for name in manifest.timing)


@pytest.mark.parametrize("status", [401, 404])
def test_a_wrong_key_or_model_stops_the_run_and_leaves_no_error_rows(data, tmp_path, status):
    with chat_server(lambda body: failed(status, f"{KEY}?")) as server:
        with pytest.raises(UserError, match=r"refuses the key|does not know") as raised:
            run(request(server, data, tmp_path / "out", threads=4))
        assert len(server.calls) <= 4
    assert not finished(tmp_path / "out")
    assert KEY not in str(raised.value)


def test_a_server_that_is_not_there_stops_the_run_and_leaves_no_error_rows(data, tmp_path):
    with chat_server(echo) as server:
        pass
    with pytest.raises(UserError, match="does not answer"):
        run(request(server, data, tmp_path / "out", retries=0))
    assert not finished(tmp_path / "out")


def test_errors_are_kept_unless_they_are_to_be_asked_again(whole, data, tmp_path):
    bad = questions_of(data, [record.id for record in read_records(data, "test")][3:5])

    def faulty(body):
        return failed(500) if asked([body], bad) else echo(body)

    out = tmp_path / "out"
    with chat_server(faulty) as server:
        run(request(server, data, out, retries=0))
        assert [number for number, row in enumerate(read_predictions(out)) if row.error] == [3, 4]
        server.answer, before = echo, len(server.calls)
        run(request(server, data, out))
        assert len(server.calls) == before
        run(request(server, data, out, retry_errors=True))
        assert asked(server.calls[before:], bad) == bad
        assert len(server.calls) == before + 2
        assert content(out) == whole
        run(request(server, data, out, retry_errors=True))
        assert len(server.calls) == before + 2


def test_models_on_one_server_each_get_a_folder(data, tmp_path):
    with chat_server(echo) as server:
        run_all([request(server, data, tmp_path / name, model=name, limit=1) for name in ("a", "b")])
    assert [body["model"] for body in server.calls] == ["a", "b"]
    with pytest.raises(UserError, match="x/a and y/a are both named"):
        run_all([request(server, data, tmp_path / "a", model=name) for name in ("x/a", "y/a")])


def test_a_model_without_a_recipe_is_refused(data, tmp_path):
    with chat_server(echo) as server, pytest.raises(RecipeError, match="no recipe beside it"):
        run(request(server, data, tmp_path / "out", recipe=None))


# The command line.


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def give(*arguments):
        monkeypatch.setattr(sys, "argv", ["infer", *map(str, arguments)])
        status = run_command(main)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return give


def test_the_command_asks_tells_the_cost_and_eval_scores_the_folder(command, data, capsys, tmp_path):
    bad = questions_of(data, [next(read_records(data, "test")).id])
    with chat_server(lambda body: failed(400, "too long") if asked([body], bad) else echo(body)) as server:
        words = ("m", "--engine", "openai", "--server", server.url, "--recipe", RECIPE, "--data", data)
        status, out, err = command(*words, "--price", 1, 2, "--parallel", 2)
        assert status == 0, err
        assert server.keys == [f"Bearer {KEY}"] * COUNT
        folder = "runs/predictions/m-data-test"
        assert f"failed: 1 of {COUNT} records" in out
        assert "HTTP status 400: too long" in out
        assert "\ncost: $0.00" in out
        assert f"predictions: {folder}" in out
        assert score([folder, "--resamples", "100", "--json", "result.json"]) == 0
        scored = capsys.readouterr().out
        assert f"INCOMPLETE: 1 of {COUNT} records of m failed on our side" in scored
        assert command("export", folder, "--out", "official")[0] == 0
        server.answer = echo
        status, out, err = command(*words, "--retry-errors")
        assert status == 0, err
        assert "failed:" not in out
        assert "cost" not in out
        assert score([folder, "--resamples", "100"]) == 0
        assert "INCOMPLETE" not in capsys.readouterr().out
    for where, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(where, name), "rb") as stream:  # noqa: PTH118, PTH123
                assert KEY.encode() not in stream.read(), name
    assert KEY not in out + err + scored


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["w", "--server", "http://x/v1"], "--server is for models on a server"),
        (["w", "--price", "1", "2"], "--price is for models on a server"),
        (["w", "--parallel", "2"], "--parallel is for models on a server"),
        (["--engine", "openai"], "names no model"),
        (["m", "--engine", "openai", "--parallel", "0"], "not positive"),
        (["m", "--engine", "openai", "--image", "a.png"], "--image is for weights that are loaded here"),
        (["m", "--engine", "openai", "--allow-encoder-mismatch"], "--allow-encoder-mismatch is for weights"),
        (["m", "--engine", "openai", "--control", "majority", "--data", "d"], "uses no weights"),
        (["m", "--engine", "openai", "--data", "d"], "no recipe beside it"),
    ],
)
def test_options_that_do_not_go_together_are_refused(command, words, message):
    status, _, err = command(*words)
    assert status == 2
    assert message in err


def test_openai_itself_is_asked_by_default_and_needs_the_key(command, data, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    status, _, err = command("gpt-4o", "--engine", "openai", "--recipe", RECIPE, "--data", data)
    assert status == 2
    assert "the server gpt-4o needs an API key" in err
    assert "https://api.openai.com/v1" not in err


def test_a_row_holds_what_a_row_of_other_engines_holds(data, tmp_path):
    with chat_server(echo) as server:
        run(request(server, data, tmp_path / "out", limit=1))
    row = json.loads(content(tmp_path / "out"))
    assert set(row) == {"id", "text", "answer", "finish", "tokens"}
    assert set(row) <= set(Prediction.__struct_fields__)
