"""A language model as judge of answer texts, through any endpoint with OpenAI's chat interface.

The call follows the published one (sgmri.md, section 8, "Judge call"), in our own words: one user message with the
reference and the reply, temperature 0, at most 20 tokens, three marks from 1 to 10. What a reply is worth is decided by
the scorers.

Which failures stop the run and which cost one reply is `benchmarks.chat`'s to say. A call that fails for good has the reply
`""` and is asked again next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.chat import Chat, Endpoint, Reply, Wording, cost
from benchmarks.threads import as_finished
from eval.sgmri.mark_cache import Mark, MarkCache, mark_key

TOKENS = 20
# Calls at a time; endpoints with tighter limits answer 429, which is waited for.
WORKERS = 4
WORDING = Wording("the judge", "--judge and --judge-url", "replies so far are kept")
# Candidate and reference.
Pair = tuple[str, str]


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
        return cost(self.prompt_tokens, self.completion_tokens, price)


class Judge:
    """Asks an endpoint, each question once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.usage = Usage()

    @property
    def name(self) -> str:
        """Model and address."""
        return self.endpoint.name

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
            chat = Chat(self.endpoint, WORDING)
            asked = as_finished(lambda pair: chat.ask(self._body(pair)), missing, threads=WORKERS)
            for pair, reply in tqdm(asked, total=len(missing), desc="judge", unit="answer", disable=None):
                # An empty reply is a call that failed.
                if isinstance(reply, Reply) and reply.text:
                    mark = self._mark(pair, reply)
                    cache.add(mark)
                    self.usage.add(mark)
                    found[pair] = reply.text
                else:
                    self.usage.failed += 1
                    found[pair] = ""
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

    def _mark(self, pair: Pair, reply: Reply) -> Mark:
        return Mark(
            key=self._key(pair),
            by=f"judge {self.name}",
            reply=reply.text,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )

    def _body(self, pair: Pair) -> dict[str, Any]:
        return {
            "model": self.endpoint.model,
            "messages": [{"role": "user", "content": prompt(*pair)}],
            "temperature": 0,
            "max_tokens": TOKENS,
        }

    def _key(self, pair: Pair) -> str:
        return mark_key(["judge", self.endpoint.address, self._body(pair)])


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
