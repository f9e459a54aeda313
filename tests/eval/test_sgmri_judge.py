"""The judge against a real local server, its cache, BERTScore's wrapper, and both in `python -m eval`."""

import json
import multiprocessing
import sys
import types

import msgspec
import pytest

import eval.sgmri.judge as judging
from benchmarks.errors import DataError
from eval.__main__ import main
from eval.evaluate import evaluate
from eval.run import load_runs
from eval.schema import read_result
from eval.sgmri.bertscore import BertScore
from eval.sgmri.judge import Endpoint, Judge, prompt
from eval.sgmri.mark_cache import MARKS, Mark, mark_key, open_cache, read_marks
from eval.sgmri.marking import Marker, mark_runs
from eval.sgmri.marks import TextMarks
from recipes.errors import UserError
from tests.eval.cases import write_data, write_run
from tests.eval.judge_server import judge_server
from tests.eval.sgmri_cases import answered, closed, invalid, perfect, record

PAIR = ("a small mass", "a large mass")
SECRET = "sk-secret-of-the-test"


def ask(server, folder, pairs=(PAIR,), **fields):
    """Replies, and the judge that gave them."""
    settings = {"model": "m", "url": server.url, "key": SECRET, "retries": 2, "seconds": 5.0} | fields
    judge = Judge(Endpoint(**settings))
    with open_cache(folder, {}) as cache:
        return judge.replies(pairs, cache), judge


def test_one_call_holds_both_texts_and_the_settings(tmp_path):
    with judge_server("8,7,9") as server:
        replies, judge = ask(server, tmp_path)
    assert replies == {PAIR: "8,7,9"}
    (call,) = server.calls
    assert (call["model"], call["temperature"], call["max_tokens"]) == ("m", 0, 20)
    (message,) = call["messages"]
    assert message["role"] == "user"
    assert all(text in message["content"] for text in PAIR)
    assert server.keys == [f"Bearer {SECRET}"]
    assert (judge.usage.calls, judge.usage.failed, judge.usage.cached) == (1, 0, 0)


def test_candidate_and_reference_are_not_exchangeable():
    assert prompt("a", "b") != prompt("b", "a")


def test_a_busy_server_is_asked_again(tmp_path):
    with judge_server((429, None), (500, None), "8,7,9") as server:
        replies, judge = ask(server, tmp_path)
    assert replies == {PAIR: "8,7,9"}
    assert len(server.calls) == 3
    assert (judge.usage.calls, judge.usage.failed) == (1, 0)


def test_a_call_that_fails_for_good_is_an_empty_reply_and_is_asked_again_next_time(tmp_path):
    with judge_server((500, None)) as server:
        replies, judge = ask(server, tmp_path, retries=1)
        assert replies == {PAIR: ""}
        assert len(server.calls) == 2
        assert (judge.usage.calls, judge.usage.failed) == (0, 1)
        assert read_marks(tmp_path) == {}
        server.script = ["1,2,3"]
        assert ask(server, tmp_path)[0] == {PAIR: "1,2,3"}


def test_a_slow_reply_is_a_failed_call(tmp_path):
    with judge_server(3.0) as server:
        replies, judge = ask(server, tmp_path, retries=0, seconds=0.2)
    assert (replies, judge.usage.failed) == ({PAIR: ""}, 1)


@pytest.mark.parametrize(
    "body",
    [
        '{"choices": []}',
        '{"choices": [{"message": {"content": ""}}]}',
        "{}",
        "[]",
        "not json",
        '{"choices": [{"message": null}]}',
        "null",
    ],
)
def test_a_body_that_is_no_completion_is_a_failed_call(tmp_path, body):
    with judge_server((200, body)) as server:
        replies, judge = ask(server, tmp_path, retries=0)
    assert (replies, judge.usage.failed) == ({PAIR: ""}, 1)


def test_a_reply_in_words_is_kept_as_it_is(tmp_path):
    with judge_server("I would say: good \u2028 “8”") as server:
        assert ask(server, tmp_path)[0] == {PAIR: "I would say: good \u2028 “8”"}
        assert ask(server, tmp_path)[0] == {PAIR: "I would say: good \u2028 “8”"}
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "refuses the key"), (403, "refuses the key"), (404, "does not know"), (400, "refuses the call")],
)
def test_what_no_call_can_survive_stops_the_run(tmp_path, status, message):
    with judge_server((status, None)) as server, pytest.raises(UserError, match=message) as raised:
        ask(server, tmp_path, [(str(number), "b") for number in range(50)])
    assert SECRET not in str(raised.value)
    assert len(server.calls) < 20


def test_nobody_at_the_address_stops_the_run(tmp_path):
    with judge_server("1,1,1") as server:
        pass
    with pytest.raises(UserError, match="does not answer"):
        ask(server, tmp_path, retries=0)


def test_a_refused_text_among_others_is_a_failed_call(tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "WORKERS", 1)
    pairs = [(str(number), "b") for number in range(4)]
    with judge_server("1,1,1", (400, None), "2,2,2") as server:
        replies, judge = ask(server, tmp_path, pairs)
    assert list(replies.values()) == ["1,1,1", "", "2,2,2", "2,2,2"]
    assert (judge.usage.calls, judge.usage.failed) == (3, 1)


def test_a_cached_reply_makes_no_call_and_needs_no_server(tmp_path):
    with judge_server("8,7,9") as server:
        ask(server, tmp_path, [PAIR, PAIR])
        assert len(server.calls) == 1
    replies, judge = ask(server, tmp_path)
    assert replies == {PAIR: "8,7,9"}
    assert (judge.usage.calls, judge.usage.cached, judge.usage.prompt_tokens) == (0, 1, 0)


@pytest.mark.parametrize("change", [{"model": "other"}, {"pairs": [("a small mass", "another")]}])
def test_another_question_is_not_the_cached_one(tmp_path, change):
    with judge_server("8,7,9", "1,1,1") as server:
        ask(server, tmp_path)
        assert list(ask(server, tmp_path, **change)[0].values()) == ["1,1,1"]


def test_every_pair_gets_the_reply_to_its_own_texts(tmp_path):
    pairs = [(f"candidate {number}", f"reference {number}") for number in range(60)]
    with judge_server(lambda question: question[-9:] + mark_key([question])) as server:
        replies, judge = ask(server, tmp_path, pairs)
    assert replies == {pair: prompt(*pair)[-9:] + mark_key([prompt(*pair)]) for pair in pairs}
    assert len(server.calls) == judge.usage.calls == len(read_marks(tmp_path)) == 60


def test_tokens_and_cost_add_up(tmp_path):
    pairs = [(str(number), "b") for number in range(7)]
    with judge_server("1,1,1") as server:
        _, judge = ask(server, tmp_path, pairs, price=(2.0, 10.0))
        assert (judge.usage.prompt_tokens, judge.usage.completion_tokens) == (700, 35)
        assert judge.usage.cost((2.0, 10.0)) == pytest.approx((700 * 2 + 35 * 10) / 1e6)
        assert "7 calls, 0 cached, 0 failed, 700 + 35 tokens, cost $0.0018" in judge.summary()
        _, again = ask(server, tmp_path, pairs, price=(2.0, 10.0))
        assert "0 calls, 7 cached, 0 failed, 0 + 0 tokens, cost $0.0000" in again.summary()
        _, free = ask(server, tmp_path, [("other", "b")])
        assert "cost unknown" in free.summary()
        server.usage = None
        _, silent = ask(server, tmp_path, [("another", "b")], price=(2.0, 10.0))
    assert "1 replies without a count" in silent.summary()
    assert "cost unknown" in silent.summary()


def test_openai_itself_needs_a_key_and_a_server_of_ones_own_does_not(tmp_path):
    with open_cache(tmp_path, {}) as cache, pytest.raises(UserError, match="needs an API key"):
        Judge(Endpoint(model="gpt-4o-mini")).replies([PAIR], cache)
    with judge_server("1,2,3") as server:
        assert ask(server, tmp_path, key=None)[0] == {PAIR: "1,2,3"}


def test_a_key_is_not_printed():
    assert SECRET not in repr(Endpoint(model="m", key=SECRET))


def test_without_the_package_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with open_cache(tmp_path, {}) as cache, pytest.raises(UserError, match="needs the package openai") as raised:
        Judge(Endpoint(model="m", key="k")).replies([PAIR], cache)
    assert "medvlm-baselines[api]" in raised.value.fix


def entry(number):
    return Mark(key=mark_key([number]), by="test", reply=f"{number}")


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_killed_writer_leaves_a_usable_cache(tmp_path, cut):
    with open_cache(tmp_path, {}) as cache:
        for number in range(3):
            cache.add(entry(number))
    path = tmp_path / MARKS
    whole = path.read_bytes()
    path.write_bytes(whole[: -7 * cut])
    lost = whole[: -7 * cut].count(b"\n")
    assert list(read_marks(tmp_path).values()) == [entry(number) for number in range(lost)]
    with open_cache(tmp_path, {}) as cache:
        for number in range(5):
            if cache.get(entry(number).key) is None:
                cache.add(entry(number))
    assert sorted(mark.reply for mark in read_marks(tmp_path).values()) == ["0", "1", "2", "3", "4"]


def write_for_ever(folder):
    with open_cache(folder, {}) as cache:
        for number in range(10**9):
            cache.add(entry(number))


def test_kill_9_loses_nothing_that_was_added(tmp_path):
    context = multiprocessing.get_context("fork")
    writer = context.Process(target=write_for_ever, args=(tmp_path,))
    writer.start()
    while not (tmp_path / MARKS).is_file() or (tmp_path / MARKS).stat().st_size < 20_000:
        assert writer.is_alive()
    with pytest.raises(DataError, match="another process is writing") as raised, open_cache(tmp_path, {}):
        pass
    assert "--out" not in raised.value.fix
    writer.kill()
    writer.join()
    found = read_marks(tmp_path)
    assert list(found.values()) == [entry(number) for number in range(len(found))]
    with open_cache(tmp_path, {}) as cache:
        assert cache.get(entry(0).key) == entry(0)


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with judge_server("1,1,1") as server, pytest.raises(DataError, match="cannot be written"):
        ask(server, tmp_path)
    assert server.calls == []


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / MARKS).write_bytes(
        msgspec.json.encode(entry(1)) + b"\n{broken}\n" + msgspec.json.encode(entry(2)) + b"\n"
    )
    with pytest.raises(DataError, match="not a mark") as raised:
        read_marks(tmp_path)
    assert raised.value.where.endswith("row 2")


def fake_bert_score(monkeypatch, values=lambda pairs: [0.5] * len(pairs), fail=None):
    """Puts a package in the place of `bert_score`; returns the calls made of it."""
    calls = []

    class Scorer:
        def __init__(self, **settings):
            calls.append(settings)
            if isinstance(fail, KeyError | OSError):
                raise fail

        def score(self, candidates, references):
            if isinstance(fail, ValueError):
                raise fail
            pairs = list(zip(candidates, references, strict=True))
            calls.append(pairs)
            return None, None, values(pairs)

    monkeypatch.setitem(sys.modules, "bert_score", types.SimpleNamespace(BERTScorer=Scorer))
    return calls


def test_bertscore_is_rescaled_and_computed_once(tmp_path, monkeypatch):
    calls = fake_bert_score(monkeypatch, lambda pairs: [len(pair[0]) / 10 for pair in pairs])
    pairs = [("ab", "x"), ("abc", "x"), ("ab", "x")]
    for _ in range(2):
        with open_cache(tmp_path, {}) as cache:
            assert BertScore().f1(pairs, cache) == {("ab", "x"): 0.2, ("abc", "x"): 0.3}
    assert calls == [
        {"model_type": "roberta-large", "lang": "en", "rescale_with_baseline": True},
        [("ab", "x"), ("abc", "x")],
    ]
    with open_cache(tmp_path, {}) as cache:
        BertScore("other").f1(pairs[:1], cache)
    assert calls[2]["model_type"] == "other"


@pytest.mark.parametrize("fail", [KeyError("tiny"), OSError("offline"), ValueError("Baseline not Found")])
def test_a_model_that_bert_score_cannot_use_is_named(tmp_path, monkeypatch, fail):
    fake_bert_score(monkeypatch, fail=fail)
    with open_cache(tmp_path, {}) as cache, pytest.raises(UserError, match="cannot use the model 'tiny'"):
        BertScore("tiny").f1([PAIR], cache)


def test_without_bert_score_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bert_score", None)
    with open_cache(tmp_path, {}) as cache, pytest.raises(UserError, match="needs the package bert-score") as raised:
        BertScore().f1([PAIR], cache)
    assert "medvlm-baselines[bertscore]" in raised.value.fix


@pytest.fixture
def records():
    return [
        record(0, "image_localization", group="v0"),
        record(1, "volume_captioning", "A small mass on frame 2.", answer_type="open_ended", group="v1"),
        record(2, "volume_captioning", "A large mass.", answer_type="open_ended", group="v1"),
        record(3, "volume_captioning", "No mass.", answer_type="open_ended", group="v2"),
        closed(4, "Yes", group="v2"),
    ]


@pytest.fixture
def folders(tmp_path, records):
    data = write_data(tmp_path / "data", records, benchmark="sgmri")
    good = [perfect(each) for each in records]
    bad = [invalid(records[0]), answered(records[1], ""), answered(records[2], "A cyst."), *good[3:]]
    failed = invalid(records[3], text=None, invalid=None, error="out of memory")
    return [
        write_run(tmp_path / "good", data, good, codec="sgmri_json"),
        write_run(tmp_path / "bad", data, [*bad[:3], failed, bad[4]], codec="sgmri_json"),
    ]


def run_main(capsys, *arguments):
    status = main([str(a) for a in arguments])
    return status, capsys.readouterr().out


def test_marks_are_of_localization_and_captioning_only(folders):
    with judge_server("5,5,5") as server:
        judge = Judge(Endpoint(model="m", url=server.url))
        marks = mark_runs(load_runs(folders), Marker(judge=judge))
    five = TextMarks(corrected_judge_reply="5,5,5")
    nothing = TextMarks(corrected_judge_reply="")
    assert marks["good"] == dict.fromkeys(("s0", "s1", "s2", "s3"), five)
    assert marks["bad"] == {"s0": nothing, "s1": nothing, "s2": five}
    # Four texts of the first run, one of the second.
    assert len(server.calls) == 5
    assert "frame 2" not in json.dumps(server.calls)


def test_what_one_run_was_told_another_need_not_ask(folders):
    with judge_server("5,5,5") as server:
        mark_runs(load_runs(folders[:1]), Marker(judge=Judge(Endpoint(model="m", url=server.url))))
        assert len(server.calls) == 4
        mark_runs(load_runs([folders[1], folders[0]]), Marker(judge=Judge(Endpoint(model="m", url=server.url))))
    assert len(server.calls) == 5


def test_published_texts_have_marks_of_their_own_and_of_the_reference(folders, records, monkeypatch):
    calls = fake_bert_score(monkeypatch)
    with judge_server(lambda question: mark_key([question])) as server:
        marker = Marker(judge=Judge(Endpoint(model="m", url=server.url)), bertscore=BertScore())
        marks = mark_runs(load_runs(folders), marker, ("published",))

    def said(candidate, reference):
        return mark_key([prompt(candidate, reference)])

    # The whole reply, and captions with their places.
    caption = records[1].target.text
    assert marks["good"]["s1"] == TextMarks(
        judge_reply=said("(decoded)", caption), judge_reply_on_reference=said(caption, caption), bertscore_f1=0.5
    )
    assert marks["bad"]["s3"].judge_reply == said("[ERROR: out of memory]", "No mass.")
    assert ("(decoded)", caption) in [pair for call in calls if isinstance(call, list) for pair in call]
    assert all(mark.corrected_judge_reply is None for run in marks.values() for mark in run.values())


def test_the_published_scorer_finds_the_marks_of_the_texts_that_it_compares(tmp_path, records):
    asked = [msgspec.structs.replace(each, id=f"{each.id}_video_qa_") for each in records]
    rows = [answered(each, "A mass.") for each in asked[:-1]]
    rows = [msgspec.structs.replace(row, text="A mass.") for row in rows] + [perfect(asked[-1])]
    data = write_data(tmp_path / "data", asked, benchmark="sgmri")
    runs = load_runs([write_run(tmp_path / "run", data, rows, codec="sgmri_text")])
    with judge_server("5,5,5") as server:
        marks = mark_runs(runs, Marker(judge=Judge(Endpoint(model="m", url=server.url))), ("published", "corrected"))
    # Four references, each also compared with itself. The profiles differ in two: a full stop, a frame.
    assert len(server.calls) == 2 * 4 + 2
    judged, bare = (evaluate(runs, resamples=100, marks=given) for given in (marks, None))
    for task in ("image_localization", "volume_captioning"):
        with_judge, without = (r.systems[0].published.report[task]["ar_score"]["mean"] for r in (judged, bare))
        # A judge that likes the answer as much as the reference gives the whole .4.
        assert with_judge == pytest.approx(0.4 + 0.6 * without)
    assert any("0 of 4 answers have a judge's marks" in note for note in bare.notes)
    assert any("4 of 4 answers have a judge's marks and 0 a BERTScore" in note for note in judged.notes)


def test_evaluate_takes_marks_and_compares_what_both_runs_have(folders):
    runs = load_runs(folders)
    marks = {run.name: {r.id: TextMarks(corrected_judge_reply="5,5,5") for r in run.records[:4]} for run in runs}
    marks["bad"]["s2"] = TextMarks(corrected_judge_reply="")
    result = evaluate(runs, profiles=("corrected",), resamples=100, marks=marks)
    found = {(s.name, m.task, m.metric): m for s in result.systems for m in s.metrics}
    assert found["good", "volume_captioning", "judge"].value == 0.5
    # s1 has no text, s2 no mark, s3 failed on our side.
    assert (found["bad", "volume_captioning", "judge"].value, found["bad", "volume_captioning", "judge"].n_records) == (
        0,
        1,
    )
    (paired,) = [c for c in result.comparisons if (c.task, c.metric) == ("volume_captioning", "ar_score")]
    assert paired.n_records == 1
    assert paired.difference == pytest.approx(0.4 * 0.5 + 0.6)
    assert "bad: 1 answers have no three marks of the judge and are in neither judge nor AR-Score" in result.notes
    assert [fault.number for fault in result.faults] == list(range(1, 34))


def test_the_command_marks_tells_the_cost_and_writes_no_key(capsys, folders, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    fake_bert_score(monkeypatch)
    with judge_server("9,8,7") as server:
        arguments = (
            "--judge",
            "m",
            "--judge-url",
            f"{server.url}/",
            "--judge-price",
            1,
            2,
            "--bertscore",
            "roberta-large",
        )
        options = ("--profile", "corrected", "--resamples", 100)
        status, out = run_main(
            capsys, *folders, *options, *arguments, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html"
        )
        assert status == 0
        assert f"judge m at {server.url}: 5 calls, 0 cached, 0 failed, 500 + 25 tokens, cost $0.0006" in out
        assert server.keys == [f"Bearer {SECRET}"] * 5
        again = run_main(capsys, *folders, *options, *arguments)[1]
        assert "0 calls, 5 cached" in again
        assert f"--judge m --judge-url {server.url}/ --judge-price 1.0 2.0 --bertscore roberta-large" in again
    result = read_result(tmp_path / "r.json")
    assert f"the AR-Score has judge m at {server.url} and BERTScore roberta-large, rescaled" in result.notes
    found = {(m.task, m.metric): m.value for m in result.systems[0].metrics}
    assert found["volume_captioning", "judge"] == pytest.approx(0.8)
    assert found["volume_captioning", "bertscore"] == 0.5
    assert SECRET not in out + again
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {MARKS, "r.json", "r.html"} <= {path.name for path in written}
    assert all(SECRET.encode() not in path.read_bytes() for path in written)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--judge-url", "http://x"], "without --judge"),
        (["--judge-price", "1", "2"], "without --judge"),
        (["--bertscore", "FOLDER"], "for a model"),
        (["--judge", "m", "--judge-url", "https://me:secret@host/v1"], "more than an address"),
        (["--judge", "m", "--judge-url", "https://host/v1?api-key=secret"], "more than an address"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(folders, arguments, message):
    given = [str(folders[1]) if word == "FOLDER" else word for word in arguments]
    with pytest.raises(UserError, match=message) as raised:
        main([str(folders[0]), "--profile", "corrected", *given])
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("price", [["-1", "2"], ["inf", "2"], ["nan", "2"], ["x", "2"]])
def test_a_price_is_a_number(folders, price):
    with pytest.raises(SystemExit):
        main([str(folders[0]), "--judge", "m", "--judge-price", *price])


def test_other_benchmarks_have_no_judge(tmp_path):
    own = [msgspec.structs.replace(closed(number, "Yes"), benchmark="generic") for number in range(2)]
    data = write_data(tmp_path / "data", own, benchmark="generic")
    folder = write_run(tmp_path / "run", data, [perfect(each) for each in own], codec="plain")
    with pytest.raises(UserError, match="have no judge"):
        main([str(folder), "--profile", "corrected", "--judge", "m"])
