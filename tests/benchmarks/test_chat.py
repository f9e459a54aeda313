"""One call to a real local server: what a reply is, what a failure, and what ends the run."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chat import PATIENCE, Chat, Endpoint, Failed, Reply, Wording, cost
from recipes.errors import UserError
from tests.chat_server import Answer, chat_server, failed, said

KEY = "sk-secret-of-the-test"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
WORDING = Wording("the server", "the model's name and --server", "the rest is kept")


def chat(server, **changes):
    settings = {"model": "m", "url": server.url, "key": KEY, "retries": 2, "seconds": 20.0} | changes
    return Chat(Endpoint(**settings), WORDING)


def ask(answer, **changes):
    """The outcome of one call, and the server."""
    answers = [answer] if isinstance(answer, Answer) else list(answer)
    with chat_server(lambda body: answers[min(len(server.calls), len(answers)) - 1]) as server:
        return chat(server, **changes).ask(BODY), server


@pytest.mark.parametrize(
    ("answer", "text", "cut"),
    [
        (said("yes"), "yes", False),
        (said("<|box_start|>(1,2)<|box_end|> <loc0001>\u2028"), "<|box_start|>(1,2)<|box_end|> <loc0001>\u2028", False),
        (said("cu", "length"), "cu", True),
        (said(None, "length"), "", True),
        (said(None), "", False),
        (said(None, "content_filter"), "", False),
        (said(None, refusal="I cannot help"), "I cannot help", False),
    ],
)
def test_what_the_model_wrote_is_the_reply(answer, text, cut):
    reply, server = ask(answer)
    assert reply == Reply(text=text, cut=cut, prompt_tokens=100, completion_tokens=5)
    assert server.keys == [f"Bearer {KEY}"]
    assert server.calls == [BODY]


def test_tokens_that_are_not_counted_are_not_zero():
    reply, _ = ask(said("yes", usage=None))
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)


@pytest.mark.parametrize("statuses", [[429], [500, 503], [408, 409]])
def test_a_busy_server_is_asked_again(statuses):
    reply, server = ask([*map(failed, statuses), said("yes")])
    assert (reply.text, len(server.calls)) == ("yes", len(statuses) + 1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (failed(500, "on\n fire"), "HTTP status 500: on fire"),
        (failed(429, "slow down"), "HTTP status 429: slow down"),
        (failed(400, "too long"), "the server refuses the call, HTTP status 400: too long"),
        (failed(413, "too large"), "the server refuses the call, HTTP status 413: too large"),
        (Answer(502, "<html>bad gateway", {"retry-after-ms": "1"}), "HTTP status 502: <html>bad gateway"),
        (failed(500, f"header was Bearer {KEY}"), "HTTP status 500: header was Bearer (the key)"),
        (failed(500, "long " * 1000), "HTTP status 500: " + ("long " * 1000)[:300]),
        (Answer(0, ""), "the connection broke off"),
        (said("half an ans", "abort"), "the server broke the reply off, finish_reason abort"),
        *((Answer(200, body), "what came back is no chat completion") for body in ("{}", "[]", "null", "not json")),
        (Answer(200, {"choices": []}), "what came back is no chat completion"),
        (said("half \ud83e"), "the reply holds half a character, which no file can"),
        (said(["parts"]), "what came back is no chat completion"),
    ],
)
def test_a_call_that_fails_for_good_says_why(answer, reason):
    outcome, _ = ask(answer)
    assert outcome == Failed(reason)


def test_a_reply_that_does_not_come_is_a_failure():
    import threading

    never = threading.Event()

    def answer(body):
        never.wait(timeout=30)
        return said("late")

    with chat_server(answer) as server:
        outcome = chat(server, seconds=0.2, retries=1).ask(BODY)
        never.set()
    assert outcome == Failed("no reply within 0.2 seconds")
    assert len(server.calls) == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (failed(401, f"wrong key {KEY}"), "refuses the key"),
        (failed(403), "refuses the key"),
        (failed(404), "does not know the model or the address"),
        (failed(429, "pay first", "insufficient_quota"), "no credit"),
    ],
)
def test_what_no_call_can_survive_ends_the_run(answer, message):
    with pytest.raises(UserError, match=message) as raised:
        ask(answer)
    assert KEY not in str(raised.value)
    assert "m at http://127.0.0.1" in raised.value.where
    assert "the rest is kept" in raised.value.fix


def test_nobody_at_the_address_ends_the_run():
    with chat_server(lambda body: said("yes")) as server:
        asked = chat(server, retries=0)
        assert asked.ask(BODY).text == "yes"
    with pytest.raises(UserError, match="does not answer"):
        asked.ask(BODY)


@pytest.mark.parametrize("status", [400, 500])
def test_a_server_that_answers_none_of_the_first_calls_ends_the_run(status):
    with chat_server(lambda body: failed(status, "no images here")) as server:
        asked = chat(server, retries=0)
        for _ in range(PATIENCE - 1):
            assert isinstance(asked.ask(BODY), Failed)
        with pytest.raises(UserError, match=r"none of the first calls.* no images here"):
            asked.ask(BODY)


def test_after_one_answer_failures_are_single_ones():
    answers = iter([failed(400), said("yes"), *[failed(400)] * (3 * PATIENCE)])
    with chat_server(lambda body: next(answers)) as server:
        asked = chat(server, retries=0)
        outcomes = [asked.ask(BODY) for _ in range(2 + 3 * PATIENCE)]
    assert [isinstance(outcome, Reply) for outcome in outcomes] == [False, True] + [False] * (3 * PATIENCE)


def test_openai_itself_needs_a_key_and_other_servers_do_not():
    with pytest.raises(UserError, match="needs an API key"):
        Chat(Endpoint(model="gpt-4o"), WORDING)
    assert ask(said("yes"), key=None)[0].text == "yes"


def test_an_address_is_a_web_address():
    with pytest.raises(UserError, match="no address of a server"):
        Chat(Endpoint(model="m", url="localhost:8000/v1", key=KEY), WORDING)
    with pytest.raises(UserError, match=r"^'host\.example' is no address of a server"):
        Chat(Endpoint(model="m", url="host.example?token=abc", key=KEY), WORDING)


def test_without_the_package_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UserError, match="needs the package openai") as raised:
        Chat(Endpoint(model="m", key=KEY), WORDING)
    assert "medvlm-baselines[api]" in raised.value.fix


def test_names_hold_no_secret():
    endpoint = Endpoint(model="m", url="https://user:pass@host.example:8000/v1/?token=abc#x", key=KEY)
    assert endpoint.name == "m at https://host.example:8000/v1"
    assert not any(secret in repr(endpoint) for secret in (KEY, "pass", "abc"))


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.tuples(*[st.floats(0, 1000, allow_nan=False, width=32)] * 2))
def test_a_million_tokens_cost_their_price(prompt, completion, price):
    assert cost(prompt, 0, price) + cost(0, completion, price) == pytest.approx(cost(prompt, completion, price))
    assert cost(10**6, 0, price) == pytest.approx(price[0])
    assert cost(0, 10**6, price) == pytest.approx(price[1])
