"""A local judge, to be told what to answer, on `tests.chat_server`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.chat_server import Answer, Body, ChatServer, chat_server, question, said


class JudgeServer:
    """Answers each call with the next of `script`, the last one for ever.

    An entry is a reply text, or makes one of the question; (status, body or `None`); or seconds to wait before `1,1,1`.

    Attributes:
        script: What is still to be answered.
        usage: Tokens of prompt and reply to report, or `None`.
    """

    def __init__(self, script: list[Any]) -> None:
        self.usage: tuple[int, int] | None = (100, 5)
        self.script = script
        self._taking = threading.Lock()
        self.server: ChatServer

    @property
    def calls(self) -> list[Body]:
        """The bodies of the calls, in order of arrival."""
        return self.server.calls

    @property
    def keys(self) -> list[str]:
        """The authorization header of each."""
        return self.server.keys

    @property
    def url(self) -> str:
        """Base address."""
        return self.server.url

    def answer(self, body: Body) -> Answer:
        """The reply to one call."""
        with self._taking:
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, tuple):
            return Answer(step[0], step[1] or '{"error": {"message": "no"}}')
        if isinstance(step, float):
            time.sleep(step)
            step = "1,1,1"
        return said(step(question(body)) if callable(step) else step, usage=self.usage)


@contextmanager
def judge_server(*script: Any) -> Iterator[JudgeServer]:
    """Runs a server on a free local port."""
    state = JudgeServer(list(script))
    with chat_server(state.answer) as state.server:
        yield state
