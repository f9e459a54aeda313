"""A language model as judge of answer texts, through any endpoint with OpenAI's chat interface.

The call follows the published one (sgmri.md, section 8, "Judge call"), in our own words: one user message with the
reference and the reply, temperature 0, at most 20 tokens, three marks from 1 to 10. What a reply is worth is decided by
the scorers.

Calls that time out, lose the connection or meet status 408, 409, 429 or 5xx are repeated by the `openai` package, with
waiting times that double (or that the server names). One that fails for good has the reply `""` and is asked again next
time. A refused key, an unknown model or an address that nobody answers at stops the run instead: no call would succeed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eval.sgmri.mark_cache import Mark, MarkCache, mark_key
from recipes.errors import UserError

if TYPE_CHECKING:
    from openai import OpenAI

OPENAI = "https://api.openai.com/v1"
TOKENS = 20
RETRIES = 6
SECONDS = 60.0
# Calls at a time; endpoints with tighter limits answer 429, which is waited for.
WORKERS = 4
# Candidate and reference.
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Whom to ask.

    Attributes:
        model: Model name, as the endpoint knows it.
        url: Base address, up to `/v1`.
        key: API key; endpoints of one's own may need none. It is only sent, never printed or written.
        price: Dollars per million tokens of prompt and of reply; `None` if not known.
        retries: How often a call is repeated.
        seconds: How long a call may take.
    """

    model: str
    url: str = OPENAI
    key: str | None = field(default=None, repr=False)
    price: tuple[float, float] | None = None
    retries: int = RETRIES
    seconds: float = SECONDS


@dataclass(slots=True)
class Usage:
    """What the calls of one command came to; cached replies cost nothing.

    Attributes:
        calls: Replies received.
        cached: Replies taken from the cache.
        failed: Calls without a reply, after all repetitions.
        prompt_tokens: Tokens of the prompts.
        completion_tokens: Tokens of the replies.
        uncounted: Replies of which the endpoint did not say the tokens.
    """

    calls: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0

    def add(self, mark: Mark) -> None:
        """Adds a reply."""
        self.calls += 1
        self.uncounted += mark.prompt_tokens is None or mark.completion_tokens is None
        self.prompt_tokens += mark.prompt_tokens or 0
        self.completion_tokens += mark.completion_tokens or 0

    def cost(self, price: tuple[float, float] | None) -> float | None:
        """Dollars; `None` if prices or tokens are not known."""
        if price is None or self.uncounted:
            return None
        return (self.prompt_tokens * price[0] + self.completion_tokens * price[1]) / 1e6


class Judge:
    """Asks an endpoint, each question once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.usage = Usage()

    @property
    def name(self) -> str:
        """Model and address."""
        return f"{self.endpoint.model} at {self.endpoint.url}"

    def replies(self, pairs: Sequence[Pair], cache: MarkCache) -> dict[Pair, str]:
        """The judge's reply on each pair of candidate and reference; `""` where the call failed for good.

        Args:
            pairs: Texts; equal pairs are asked once.
            cache: Where replies are looked up and kept.

        Raises:
            UserError: The `openai` package is not installed, or the endpoint cannot be used at all.
        """
        from tqdm import tqdm

        found, missing = {}, []
        for pair in dict.fromkeys(pairs):
            mark = cache.get(self._key(pair))
            if mark is None or mark.reply is None:
                missing.append(pair)
            else:
                self.usage.cached += 1
                found[pair] = mark.reply
        if missing:
            with self._client() as client, tqdm(total=len(missing), desc="judge", unit="answer", disable=None) as bar:
                for pair, mark in self._ask_all(client, missing):
                    if mark is None:
                        self.usage.failed += 1
                    else:
                        cache.add(mark)
                        self.usage.add(mark)
                    found[pair] = "" if mark is None else mark.reply or ""
                    bar.update()
        return found

    def summary(self) -> str:
        """One line: calls, tokens, cost."""
        usage, cost = self.usage, self.usage.cost(self.endpoint.price)
        tokens = f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"
        if usage.uncounted:
            tokens += f" ({usage.uncounted} replies without a count)"
        return (
            f"judge {self.name}: {usage.calls} calls, {usage.cached} cached, {usage.failed} failed, {tokens}, "
            f"cost {'unknown' if cost is None else f'${cost:.4f}'}"
        )

    def _client(self) -> OpenAI:
        try:
            from openai import OpenAI
        except ImportError as error:
            raise UserError("the judge needs the package openai", fix="pip install 'medvlm-baselines[api]'") from error
        given = self.endpoint
        if given.key is None and given.url == OPENAI:
            raise UserError(
                f"the judge {given.model} needs an API key",
                fix="set OPENAI_API_KEY, or name an endpoint that needs none with --judge-url",
            )
        return OpenAI(api_key=given.key or "none", base_url=given.url, max_retries=given.retries, timeout=given.seconds)

    def _ask_all(self, client: OpenAI, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Mark | None]]:
        """Replies as they come; only as many calls are begun as can run, so that a stop is soon."""
        waiting = iter(pairs)
        running: dict[Future[Mark | None], Pair] = {}
        with ThreadPoolExecutor(WORKERS) as pool:
            for pair in waiting:
                running[pool.submit(self._ask, client, pair)] = pair
                if len(running) == WORKERS:
                    yield from self._finished(running)
            while running:
                yield from self._finished(running)

    @staticmethod
    def _finished(running: dict[Future[Mark | None], Pair]) -> Iterator[tuple[Pair, Mark | None]]:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()

    def _ask(self, client: OpenAI, pair: Pair) -> Mark | None:
        import openai

        try:
            response = client.chat.completions.create(**self._body(pair))
            reply = response.choices[0].message.content
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise self._unusable("refuses the key", "check OPENAI_API_KEY") from error
        except openai.NotFoundError as error:
            raise self._unusable("does not know the model or the address", "check --judge and --judge-url") from error
        except openai.APITimeoutError:
            return None
        except openai.APIConnectionError as error:
            if not self.usage.calls:
                raise self._unusable("does not answer", "check --judge-url, and whether the server runs") from error
            return None
        except openai.BadRequestError as error:
            if not self.usage.calls:
                raise self._unusable(f"refuses the call: {error.message}", "choose another model") from error
            return None
        except (openai.APIError, AttributeError, IndexError, TypeError, ValueError):
            # The last four: status 200 and a body that is no chat completion.
            return None
        if not reply:
            return None
        usage = response.usage
        return Mark(
            key=self._key(pair),
            by=f"judge {self.name}",
            reply=reply,
            prompt_tokens=usage.prompt_tokens if usage is not None else None,
            completion_tokens=usage.completion_tokens if usage is not None else None,
        )

    def _unusable(self, what: str, fix: str) -> UserError:
        return UserError(f"the endpoint of the judge {what}", where=self.name, fix=f"{fix}; replies so far are kept")

    def _body(self, pair: Pair) -> dict[str, Any]:
        return {
            "model": self.endpoint.model,
            "messages": [{"role": "user", "content": prompt(*pair)}],
            "temperature": 0,
            "max_tokens": TOKENS,
        }

    def _key(self, pair: Pair) -> str:
        return mark_key(["judge", self.endpoint.url, self._body(pair)])


def prompt(candidate: str, reference: str) -> str:
    """The judge's question."""
    return (
        "A reply to a question about a medical image is to be compared with the reference answer.\n\n"
        f"Reference answer:\n{reference}\n\n"
        f"Reply:\n{candidate}\n\n"
        "Give the reply three marks from 1 (worst) to 10 (best): accuracy, how well it agrees with the reference; "
        "relevance, how much of it bears on the question; helpfulness, how useful it is to the person who asked. "
        "Write only the three numbers, separated by commas."
    )
