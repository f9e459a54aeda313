"""A local server with OpenAI's chat interface, to be told what to answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class JudgeServer:
    """Answers each call with the next of `script`, the last one for ever.

    An entry is a reply text, or makes one of the question; (status, body or `None`); or seconds to wait before `1,1,1`.

    Attributes:
        script: What to answer.
        calls: The bodies of the calls, in order of arrival.
        keys: The authorization header of each.
        usage: Tokens to report, or `None`.
    """

    def __init__(self, script: list[Any]) -> None:
        self.script = script
        self.calls: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.usage: dict[str, int] | None = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Handles one call."""
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        step = self.script[min(len(self.calls), len(self.script) - 1)]
        self.calls.append(body)
        self.keys.append(request.headers["Authorization"])
        status, content = 200, b""
        if isinstance(step, tuple):
            status, content = step[0], (step[1] or '{"error": {"message": "no"}}').encode()
        elif request.path != "/v1/chat/completions":
            status, content = 404, b"{}"
        else:
            if isinstance(step, float):
                time.sleep(step)
            said = step(body["messages"][0]["content"]) if callable(step) else step
            content = self._completion(said if isinstance(said, str) else "1,1,1")
        try:
            request.send_response(status)
            request.send_header("Content-Type", "application/json")
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the caller has stopped waiting

    def _completion(self, text: str) -> bytes:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return json.dumps(
            {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            | ({"usage": self.usage} if self.usage else {})
        ).encode()


@contextmanager
def judge_server(*script: Any) -> Iterator[JudgeServer]:
    """Runs a server on a free local port."""
    state = JudgeServer(list(script))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.answer(self)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
