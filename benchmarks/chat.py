"""Asking a model on a server with OpenAI's chat interface: whom, what a failure means, what the replies cost.

Calls that time out, lose the connection or meet status 408, 409, 429 or 5xx are repeated by the `openai` package, with
waiting times that double (or that the server names). One that fails for good is a `Failed` with the reason. Where no
call could succeed the run stops instead: a refused key, an unknown model, no credit left, an address that nobody answers
at, or a server that has answered none of the first calls.

The key is only sent: it is in no message, and what a server writes is passed on without it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recipes.errors import UserError

if TYPE_CHECKING:
    import openai
    from openai import OpenAI
    from openai.types.chat import ChatCompletion

OPENAI = "https://api.openai.com/v1"
# So many calls at the start that all failed are no chance: there is no use in thousands more.
PATIENCE = 8
# Characters of a server's message that are kept.
MESSAGE = 300
# What vLLM and SGLang say of a reply that they broke off.
BROKEN_OFF = ("abort", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Whom to ask.

    Attributes:
        model: Model name, as the server knows it.
        url: Base address, up to `/v1`.
        key: API key; servers of one's own may need none.
        price: Dollars per million tokens of prompt and of reply; `None` if not known.
        retries: How often a call is repeated.
        seconds: How long a call may take.
    """

    model: str
    url: str = field(default=OPENAI, repr=False)
    key: str | None = field(default=None, repr=False)
    price: tuple[float, float] | None = None
    retries: int = 6
    seconds: float = 60.0

    @property
    def address(self) -> str:
        """The base address without user name, password and query, which may be secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")

    @property
    def name(self) -> str:
        """Model and address."""
        return f"{self.model} at {self.address}"


@dataclass(frozen=True, slots=True)
class Wording:
    """How messages speak of a server.

    Attributes:
        who: The server's part in the command.
        options: What says which model and address are meant.
        kept: What becomes of the work so far.
    """

    who: str
    options: str
    kept: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server said.

    Attributes:
        text: The reply, untouched; a refusal's text where the model refuses; `""` where it wrote nothing.
        cut: The limit on tokens ended the text.
        prompt_tokens: What the reply cost, as the server counts; `None` if it does not say.
        completion_tokens: The same of the reply itself, thinking included.
    """

    text: str
    cut: bool
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """A call without a reply, after all repetitions."""

    reason: str


class Chat:
    """Asks one model; may be used by several threads.

    Args:
        endpoint: Whom to ask.
        wording: How messages speak of it.

    Raises:
        UserError: The `openai` package is not installed, the address is none, or OpenAI is to be asked without a key.
    """

    def __init__(self, endpoint: Endpoint, wording: Wording) -> None:
        self.endpoint = endpoint
        self.wording = wording
        self._client = self._connect()
        self._lock = threading.Lock()
        self._answered = False
        self._failures = 0

    def ask(self, body: Mapping[str, Any]) -> Reply | Failed:
        """Makes one call, repeated where that may help.

        Args:
            body: The request, as OpenAI's interface has it.

        Raises:
            UserError: No call can succeed; see the module.
        """
        found = self._call(body)
        with self._lock:
            self._answered |= isinstance(found, Reply)
            self._failures += isinstance(found, Failed)
            hopeless = not self._answered and self._failures >= PATIENCE
        if hopeless and isinstance(found, Failed):
            raise self._unusable(f"has answered none of the first calls; the last: {found.reason}", "mend what it says")
        return found

    def _connect(self) -> OpenAI:
        given, who = self.endpoint, self.wording.who
        try:
            from openai import OpenAI as Client
        except ImportError as error:
            raise UserError(f"{who} needs the package openai", fix="pip install 'medvlm-baselines[api]'") from error
        if urlsplit(given.url).scheme not in ("http", "https"):
            said = given.address.removeprefix("://")
            raise UserError(f"{said!r} is no address of a server", fix="begin it with http:// or https://")
        if given.key is None and given.address == OPENAI:
            raise UserError(
                f"{who} {given.model} needs an API key",
                fix=f"set OPENAI_API_KEY, or name a server that needs none ({self.wording.options})",
            )
        return Client(api_key=given.key or "none", base_url=given.url, max_retries=given.retries, timeout=given.seconds)

    def _call(self, body: Mapping[str, Any]) -> Reply | Failed:
        import openai

        check = f"check {self.wording.options}"
        try:
            return _read(self._client.chat.completions.create(**body))
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise self._unusable("refuses the key", "check OPENAI_API_KEY") from error
        except openai.NotFoundError as error:
            raise self._unusable("does not know the model or the address", check) from error
        except openai.APITimeoutError:
            return Failed(f"no reply within {self.endpoint.seconds:g} seconds")
        except openai.APIConnectionError as error:
            if self._alive():
                return Failed("the connection broke off")
            raise self._unusable("does not answer", f"{check}, and whether the server runs") from error
        except openai.APIStatusError as error:
            if error.code == "insufficient_quota":
                raise self._unusable("has no credit left for this key", "add credit") from error
            refused = "the server refuses the call, " if error.status_code < 429 else ""
            return Failed(f"{refused}HTTP status {error.status_code}: {self._said(error)}")
        except (openai.APIError, AttributeError, IndexError, TypeError, ValueError):
            return Failed("what came back is no chat completion")

    def _alive(self) -> bool:
        """Whether the server answers at all, be it with an error."""
        import openai

        try:
            self._client.with_options(max_retries=1).models.with_raw_response.list()
        except openai.APIConnectionError:
            return False
        except openai.APIError:
            return True
        return True

    def _said(self, error: openai.APIStatusError) -> str:
        """The server's own message on one line, without the key, which some repeat."""
        body = error.body
        text = str(body.get("message") or body) if isinstance(body, dict) else str(body or error.message)
        if self.endpoint.key is not None:
            text = text.replace(self.endpoint.key, "(the key)")
        return " ".join(text.split())[:MESSAGE]

    def _unusable(self, what: str, fix: str) -> UserError:
        return UserError(f"{self.wording.who} {what}", where=self.endpoint.name, fix=f"{fix}; {self.wording.kept}")


def price(text: str) -> float:
    """A price on the command line.

    Raises:
        ValueError: It is negative or no finite number.
    """
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{text} is no price")
    return number


def cost(prompt_tokens: int, completion_tokens: int, price: tuple[float, float]) -> float:
    """Dollars for tokens, at a price per million tokens of prompt and of reply."""
    return (prompt_tokens * price[0] + completion_tokens * price[1]) / 1e6


def _read(response: ChatCompletion) -> Reply | Failed:
    """Reads a response; one that is no chat completion raises some error."""
    choice = response.choices[0]
    message = choice.message
    text = message.content or getattr(message, "refusal", None) or ""
    if not isinstance(text, str):
        raise TypeError("the content of a reply is a string")
    try:
        text.encode()
    except UnicodeEncodeError:
        return Failed("the reply holds half a character, which no file can")
    if choice.finish_reason in BROKEN_OFF:
        return Failed(f"the server broke the reply off, finish_reason {choice.finish_reason}")
    usage = response.usage
    return Reply(
        text=text,
        cut=choice.finish_reason == "length",
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def _count(usage: object, name: str) -> int | None:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) else None
