"""A local server with OpenAI's chat interface whose replies a test decides, call by call."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image as PILImage

Body = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What goes back: a status, a body (sent as JSON if it is no string) and headers; status 0 cuts the connection."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


def said(text: Any, finish: str = "stop", usage: tuple[int, int] | None = (100, 5), **message: Any) -> Answer:
    """A chat completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return Answer(200, body)


def failed(status: int, message: str = "no", code: str | None = None) -> Answer:
    """An error; the caller is asked to repeat at once, if it does at all."""
    return Answer(status, {"error": {"message": message, "code": code}}, {"retry-after-ms": "1"})


def question(body: Body) -> str:
    """The text at the end of the user's turn."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def pictures(body: Body) -> list[PILImage.Image]:
    """The images of the user's turn, in order."""
    found = []
    for part in body["messages"][-1]["content"]:
        if part["type"] == "image_url":
            kind, _, data = part["image_url"]["url"].partition(",")
            assert kind == "data:image/png;base64"
            found.append(PILImage.open(io.BytesIO(base64.b64decode(data, validate=True))))
            assert found[-1].format == "PNG"
    return found


class ChatServer:
    """The server's state.

    Attributes:
        answer: Decides the reply to a body; called from several threads.
        calls: The bodies, in order of arrival.
        keys: The authorization header of each.
        url: Base address.
    """

    def __init__(self, answer: Callable[[Body], Answer]) -> None:
        self.answer = answer
        self.calls: list[Body] = []
        self.keys: list[str] = []
        self.url = ""

    def questions(self) -> list[str]:
        """What was asked, in order of arrival."""
        return [question(body) for body in self.calls]


@contextmanager
def chat_server(answer: Callable[[Body], Answer]) -> Iterator[ChatServer]:
    """Runs a server on a free local port."""
    state = ChatServer(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(Answer(200, {"object": "list", "data": []}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.calls.append(body)
            state.keys.append(self.headers["Authorization"])
            known = self.path == "/v1/chat/completions"
            self._send(state.answer(body) if known else Answer(404, {"error": {"message": "no such path"}}))

        def _send(self, answer: Answer) -> None:
            if answer.status == 0:
                self.close_connection = True
                return
            content = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
            try:
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the caller has stopped waiting

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
