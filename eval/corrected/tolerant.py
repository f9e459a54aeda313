"""Extraction-tolerant reading: the answer inside an output that is more than the answer.

Only what surrounds the answer is removed: a byte order mark, code fences, words before and after a
JSON object. The answer itself must still satisfy the codec. So the difference to the strict score is
what format costs, and the rest is what reading costs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from benchmarks.schema import Answer, Ask
from collators.codecs.base import Codec

# A text with more opening braces than this is not an answer with words around it; the bound keeps
# nested garbage from taking quadratic time.
MAX_OBJECTS = 32
_FENCE = re.compile(r"```[^\S\n]*\w*[^\S\n]*\n?(.*?)```", re.DOTALL)


def read_tolerantly(text: str, codec: Codec, ask: Ask) -> Answer | None:
    """The first answer that the codec finds in the text or in a part of it; `None` if there is none."""
    for candidate in _candidates(text):
        answer = codec.decode(candidate, ask)
        if isinstance(answer, Answer):
            return answer
    return None


def _candidates(text: str) -> Iterator[str]:
    bare = text.lstrip("\ufeff").strip()
    yield bare
    fence = _FENCE.search(bare)
    if fence:
        yield fence.group(1).strip()
    yield from _objects(bare)


def _objects(text: str) -> Iterator[str]:
    """JSON objects in a text, left to right, not those inside an earlier one."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    for _ in range(MAX_OBJECTS):
        if start < 0:
            return
        try:
            _, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield text[start:end]
        start = text.find("{", end)
