"""The prediction folder: any number of processes, any interruption, the same bytes; and what is refused."""

import dataclasses
import fcntl
import json
import math
import resource
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import infer.predict
from benchmarks.errors import DataError
from benchmarks.predictions import MANIFEST, PREDICTIONS, Manifest, read_manifest, read_predictions
from benchmarks.schema import Answer
from collators.codecs.base import Invalid
from infer.blocks import consecutive
from infer.engines.base import Generated
from infer.predict import Job, predict, to_row
from tests.collators.samples import plain_record

RECORDS = [plain_record(f"question {n}", name=f"r{n:02d}") for n in range(22)]
SCORES = {"label_scores": {"yes": -0.1, "no": -math.pi}, "label_scores_at": "prompt"}
SETTINGS = {"weights_hash": "abc", "decoding": {"max_new_tokens": 12}, "split": "test"}


class Killed(BaseException):
    """Stands for a kill: no handler of the code under test may catch it."""


class Echo:
    """An engine that answers with the record's id and counts its blocks."""

    def __init__(self):
        self.blocks = []

    def generate(self, records):
        self.blocks.append([record.id for record in records])
        return [
            Generated(error=f"record {record.id} is broken")
            if record.id == "r05"
            else Generated(text=f"a {record.id} – \u2028", finish="stop", prompt_tokens=7, new_tokens=3, **SCORES)
            for record in records
        ]


def decode(text, ask):
    return Invalid("odd") if text.endswith("7 – \u2028") else Answer(text=text)


def job_of(out, *, records=RECORDS, block=4, decode=decode, **changes):
    blocks = consecutive(len(records), block)
    return Job(records=records, decode=decode, out=out, blocks=blocks, settings=SETTINGS | changes)


def manifest(seconds, tokens):
    return Manifest(
        name="echo", dataset="d", dataset_hash="h", split="test", records=len(RECORDS), engine="echo", codec="plain"
    )


def finish(job, engine=None):
    return predict(job, lambda: engine or Echo(), manifest)


def content(folder):
    return (folder / PREDICTIONS).read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Bytes of an uninterrupted run."""
    return content(finish(job_of(tmp_path_factory.mktemp("whole") / "out")))


# Several processes, played by threads: the state of `accelerate` is all that tells them apart.


@dataclass(frozen=True)
class Process:
    process_index: int
    num_processes: int
    barrier: threading.Barrier

    @property
    def is_main_process(self):
        return self.process_index == 0

    def wait_for_everyone(self):
        self.barrier.wait(timeout=60)


@contextmanager
def processes_are_threads():
    local = threading.local()
    real = infer.predict.process_state
    infer.predict.process_state = lambda: local.state
    try:
        yield local
    finally:
        infer.predict.process_state = real


def run_processes(job, count, manifest=manifest):
    """Runs a job with `count` processes; returns their engines and errors."""
    barrier = threading.Barrier(count)
    engines = [Echo() for _ in range(count)]
    errors = []

    def process(rank):
        local.state = Process(rank, count, barrier)
        try:
            predict(job, lambda: engines[rank], manifest)
        except (Killed, DataError, threading.BrokenBarrierError) as error:
            errors.append(error)
            barrier.abort()

    with processes_are_threads() as local:
        threads = [threading.Thread(target=process, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return engines, [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]


def killing_decode(after):
    """A decoder that lets `after` rows through and then kills."""
    lock = threading.Lock()
    left = [after]

    def kill(text, ask):
        with lock:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
        return decode(text, ask)

    return kill


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("block", [1, 8, 22, 50])
def test_any_number_of_processes_gives_the_rows_once_in_dataset_order(tmp_path, count, block):
    job = job_of(tmp_path / "out", block=block)
    engines, errors = run_processes(job, count)
    assert not errors
    rows = read_predictions(tmp_path / "out")
    assert [row.id for row in rows] == [record.id for record in RECORDS]
    assert sorted(i for engine in engines for ids in engine.blocks for i in ids) == [record.id for record in RECORDS]
    blocks = -(-len(RECORDS) // block)
    assert sum(bool(engine.blocks) for engine in engines) == min(count, blocks)


def test_blocks_are_fixed_pieces_of_the_dataset_order(tmp_path):
    engines, _ = run_processes(job_of(tmp_path / "out", block=8), 3)
    ids = [record.id for record in RECORDS]
    assert [engine.blocks for engine in engines] == [[ids[:8]], [ids[8:16]], [ids[16:]]]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_file_has_the_same_bytes_whatever_the_number_of_processes(tmp_path, whole, count):
    run_processes(job_of(tmp_path / "out"), count)
    assert content(tmp_path / "out") == whole


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_in_lockstep_every_process_calls_equally_often(tmp_path, whole, count):
    """Eight processes have six blocks: two only keep the others company."""
    engines, errors = run_processes(dataclasses.replace(job_of(tmp_path / "out"), lockstep=True), count)
    assert not errors
    assert {len(engine.blocks) for engine in engines} == {-(-6 // count)}
    assert content(tmp_path / "out") == whole


@pytest.mark.parametrize("after", range(len(RECORDS) - 1))
def test_a_run_killed_after_any_row_and_continued_is_the_uninterrupted_run(tmp_path, whole, after):
    out = tmp_path / "out"
    with pytest.raises(Killed):
        finish(job_of(out, decode=killing_decode(after)))
    assert not (out / MANIFEST).exists()
    engine = Echo()
    finish(job_of(out), engine)
    assert content(out) == whole
    # Whole blocks only, so that a text cannot depend on where the kill fell; finished blocks are not repeated.
    written = after + (after >= 5)  # the broken record is a row without passing the decoder
    assert len(engine.blocks) == -(-len(RECORDS) // 4) - written // 4
    assert all(len(block) == 4 or block[-1] == "r21" for block in engine.blocks)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kills=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(0, 60)), max_size=4))
def test_any_series_of_kills_with_torn_lines_and_other_process_counts(tmp_path_factory, whole, kills):
    out = tmp_path_factory.mktemp("kills") / "out"
    for count, after, torn in kills:
        run_processes(job_of(out, decode=killing_decode(after)), count)
        # What a kill inside a write leaves behind: the last line without its end.
        for part in out.glob("parts/*.jsonl"):
            data = part.read_bytes()
            last = len(data) - data[:-1].rfind(b"\n") - 1
            part.write_bytes(data[: len(data) - min(torn, last)])
    finish(job_of(out))
    assert content(out) == whole
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == [
        MANIFEST,
        PREDICTIONS,
        "settings.json",
    ]


def test_a_kill_between_merging_and_the_manifest(tmp_path, whole):
    out = tmp_path / "out"

    def killed(seconds, tokens):
        raise Killed

    with pytest.raises(Killed):
        predict(job_of(out), Echo, killed)
    assert content(out) == whole
    assert not (out / MANIFEST).exists()
    engine = Echo()
    finish(job_of(out), engine)
    assert engine.blocks == []
    assert content(out) == whole
    assert read_manifest(out).records == 22


def test_a_kill_while_the_parts_are_removed(tmp_path, whole, monkeypatch):
    out = tmp_path / "out"

    def killed(path):
        raise Killed

    monkeypatch.setattr("infer.predict.shutil.rmtree", killed)
    with pytest.raises(Killed):
        finish(job_of(out))
    assert content(finish(job_of(out))) == whole


def test_a_kill_while_the_settings_are_written(tmp_path, whole):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").touch()
    (out / ".settings.json.4711.part").write_text('{"we')
    assert content(finish(job_of(out))) == whole


def test_a_finished_folder_is_left_alone(tmp_path):
    out = finish(job_of(tmp_path / "out"))
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.name != ".lock"}

    def load():
        raise AssertionError("the model is loaded for nothing")

    predict(job_of(out), load, manifest)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.name != ".lock"} == before


def test_a_backlog_is_dealt_out_to_all_processes(tmp_path):
    """Whoever finished early must not wait at the end for another's share."""
    out = tmp_path / "out"
    ids = [record.id for record in RECORDS]
    with pytest.raises(Killed):
        finish(job_of(out, block=1, decode=killing_decode(11)))
    # As if only the second of two processes had been slow: the odd blocks are missing.
    part = next(out.glob("parts/*.jsonl"))
    part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[::2]))
    missing = len(ids) - len(part.read_bytes().splitlines())
    engines, _ = run_processes(job_of(out, block=1), 2)
    assert sorted(len(engine.blocks) for engine in engines) == [missing // 2, missing - missing // 2]


# Tokens of the timing.


def counting(counted):
    """A manifest maker that keeps the number of tokens it is told."""

    def make(seconds, tokens):
        counted.append(tokens)
        return manifest(seconds, tokens)

    return make


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_tokens_of_all_processes_are_counted_once(tmp_path, count):
    """22 records in blocks of 4 are 6 blocks: shares differ, so no process can tell the sum from its own."""
    counted = []
    run_processes(job_of(tmp_path / "out"), count, counting(counted))
    assert counted == [3 * (len(RECORDS) - 1)]  # r05 fails


@given(after=st.integers(0, 20), first=st.integers(1, 3), second=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_only_the_tokens_of_the_rows_written_now_are_counted(tmp_path_factory, after, first, second):
    out = tmp_path_factory.mktemp("tokens") / "out"
    run_processes(job_of(out, decode=killing_decode(after)), first)
    rows = [json.loads(line) for part in out.glob("parts/*.jsonl") for line in part.read_bytes().splitlines()]
    kept = sum(row["tokens"]["new"] for row in rows if "tokens" in row)
    counted = []
    run_processes(job_of(out), second, counting(counted))
    assert counted == [3 * (len(RECORDS) - 1) - kept]


# What is refused.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights_hash": "abd"}, "weights_hash: 'abc' -> 'abd'"),
        ({"decoding": {"max_new_tokens": 13}}, "decoding.max_new_tokens: 12 -> 13"),
        ({"control": "blank_image"}, "control: None -> 'blank_image'"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_are_refused_by_name(tmp_path, whole, change, message, finished):
    out = tmp_path / "out"
    with pytest.raises(Killed):
        finish(job_of(out, decode=killing_decode(3)))
    if finished:
        finish(job_of(out))
    with pytest.raises(DataError, match="holds predictions made with other settings") as raised:
        finish(job_of(out, **change))
    assert message in raised.value.message
    assert content(finish(job_of(out))) == whole


def test_a_run_that_stopped_before_its_first_row_binds_nobody(tmp_path, whole):
    out = tmp_path / "out"
    with pytest.raises(Killed):
        finish(job_of(out, decode=killing_decode(0), weights_hash="abd"))
    assert content(finish(job_of(out))) == whole
    assert json.loads((out / "settings.json").read_text()) == SETTINGS
    with pytest.raises(DataError, match="weights_hash: 'abc' -> 'abd'"):
        finish(job_of(out, weights_hash="abd"))


def test_settings_that_json_spells_otherwise_are_the_same(tmp_path):
    out = finish(job_of(tmp_path / "out", pair=(1, 2)))
    assert finish(job_of(out, pair=(1, 2))) == out


def test_a_second_writer_is_refused_and_the_first_goes_on(tmp_path, whole):
    out = tmp_path / "out"
    out.mkdir()
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is writing") as raised:
            finish(job_of(out))
        assert raised.value.fix
    assert content(finish(job_of(out))) == whole


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is not empty and not a prediction folder"):
        finish(job_of(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "notes.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    path = tmp_path / "out"
    path.touch()
    with pytest.raises(DataError, match="predictions cannot be written: File exists") as raised:
        finish(job_of(path))
    assert raised.value.where == str(path)


def test_a_damaged_row_is_named(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(Killed):
        finish(job_of(out, decode=killing_decode(3)))
    part = next(out.glob("parts/*.jsonl"))
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(lines[0] + b'{"id": 3}\n' + lines[2])
    with pytest.raises(DataError, match="not a prediction") as raised:
        finish(job_of(out))
    assert raised.value.where == f"{part} row 2"


def test_a_full_disk_is_said_and_what_was_written_is_kept(tmp_path, whole):
    out = tmp_path / "out"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # A limit on the size of a file fails the same write that a full disk does.
        resource.setrlimit(resource.RLIMIT_FSIZE, (900, before[1]))
        with pytest.raises(DataError, match="predictions cannot be written: File too large") as raised:
            finish(job_of(out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert raised.value.where.endswith("part-00000.jsonl")
    assert "finished rows are kept" in raised.value.fix
    kept = next(out.glob("parts/*.jsonl")).read_bytes()
    assert whole.startswith(kept)
    assert kept.count(b"\n") > 3
    assert content(finish(job_of(out))) == whole


# Rows.


def test_a_failed_sample_is_a_row_with_its_error(tmp_path):
    rows = {row.id: row for row in read_predictions(finish(job_of(tmp_path / "out")))}
    assert (rows["r05"].error, rows["r05"].text, rows["r05"].answer) == ("record r05 is broken", None, None)
    assert (rows["r07"].invalid, rows["r07"].answer) == ("odd", None)
    assert rows["r08"].text == "a r08 – \u2028"
    assert rows["r08"].answer == Answer(text=rows["r08"].text)
    assert (rows["r08"].tokens.prompt, rows["r08"].tokens.new) == (7, 3)


def test_class_scores_are_written_to_the_last_digit_and_a_failed_row_has_none(tmp_path):
    rows = {row.id: row for row in read_predictions(finish(job_of(tmp_path / "out")))}
    for name in ("r07", "r08"):  # the former's text is invalid
        assert {"label_scores": rows[name].label_scores, "label_scores_at": rows[name].label_scores_at} == SCORES
    assert (rows["r05"].label_scores, rows["r05"].label_scores_at) == (None, None)


@pytest.mark.parametrize(
    ("finish_", "invalid"), [("length", "truncated: odd"), ("stop", "odd")], ids=["length", "stop"]
)
def test_only_a_text_cut_by_the_limit_is_called_truncated(finish_, invalid):
    row = to_row(RECORDS[0], Generated(text="x", finish=finish_), lambda text, ask: Invalid("odd"))
    assert (row.invalid, row.finish) == (invalid, finish_)
    row = to_row(RECORDS[0], Generated(text="x", finish=finish_), lambda text, ask: Answer(text="x"))
    assert row.invalid is None


def test_an_engine_without_a_text_and_without_an_error_is_an_error():
    assert to_row(RECORDS[0], Generated(), decode).error == "the engine returned no text"


def test_settings_on_disk_are_readable_json(tmp_path):
    out = finish(job_of(tmp_path / "out"))
    assert json.loads((out / "settings.json").read_text()) == SETTINGS


# Rows that hold an error, asked again.


class Mended(Echo):
    """The same engine once the record can be read."""

    def generate(self, records):
        return [
            Generated(text="mended", finish="stop") if record.id == "r05" else result
            for record, result in zip(records, super().generate(records), strict=True)
        ]


def retry(job, **changes):
    return dataclasses.replace(job, retry_errors=True, **changes)


@pytest.mark.parametrize("block", [1, 4])
def test_errors_of_a_finished_folder_are_asked_again_and_nothing_else_changes(whole, tmp_path, block):
    job = job_of(tmp_path / "out", block=block)
    finish(job)
    engine = Mended()
    assert finish(retry(job), engine) == job.out
    assert [ids for ids in engine.blocks if "r05" in ids] == engine.blocks
    assert len(engine.blocks) == 1
    assert not (job.out / "parts").exists()
    old, new = whole.splitlines(), content(job.out).splitlines()
    assert [number for number, line in enumerate(old) if new[number] != line] == [5]
    assert json.loads(new[5])["text"] == "mended"
    again = Mended()
    finish(retry(job), again)
    assert not again.blocks


def test_errors_of_an_unfinished_folder_are_asked_again(tmp_path):
    job = job_of(tmp_path / "out", block=1)
    with pytest.raises(Killed):
        finish(dataclasses.replace(job, decode=killing_decode(12)))
    engine = Mended()
    finish(retry(job), engine)
    assert engine.blocks[0] == ["r05"]
    assert all(row.error is None for row in read_predictions(job.out))


def test_a_kill_before_the_manifest_is_gone_leaves_the_finished_folder(whole, tmp_path, monkeypatch):
    job = job_of(tmp_path / "out")
    finish(job)

    def kill(path, missing_ok=False):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", kill)
        with pytest.raises(Killed):
            finish(retry(job))
    assert content(finish(job)) == whole
    # What the kill left does not count.
    (job.out / "parts" / "part-00001.jsonl").write_bytes(whole)
    finish(retry(job), Mended())
    assert read_predictions(job.out)[5].text == "mended"


@pytest.mark.parametrize("threads", [2, 5, 30])
def test_blocks_beside_each_other_give_the_same_file(whole, tmp_path, threads):
    engine = Echo()
    assert content(finish(dataclasses.replace(job_of(tmp_path / "out"), threads=threads), engine)) == whole
    assert sorted(engine.blocks) == [[record.id for record in RECORDS[n : n + 4]] for n in range(0, 22, 4)]


def test_tokens_that_a_server_does_not_count_are_left_out():
    generated = Generated(text="a", finish="stop", prompt_tokens=None, new_tokens=None)
    assert to_row(RECORDS[0], generated, decode).tokens is None
