"""Where the class stands in a model's text, whatever the text is: cut, invalid, or no answer at all."""

from __future__ import annotations

import json
import re

_JSON = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\n\r]*")
_TAG_SLOT = re.compile(r"<REG>[^<]*</REG><CLS>")


def json_class_offset(text: str) -> int | None:
    """Number of characters up to and with the quote that opens the value of the member `class`.

    Members are read from the start of the object until the text ends or stops being JSON. Of two members
    `class` the later counts, as it does in decoding.
    """
    found = None
    position = _skip(text, 0)
    separator = "{"
    while text.startswith(separator, position):
        key = _value(text, _skip(text, position + 1))
        if key is None or not text.startswith(":", key[1]):
            break
        start = _skip(text, key[1] + 1)
        if key[0] == "class" and text.startswith('"', start):
            found = start + 1
        value = _value(text, start)
        if value is None:
            break
        position = value[1]
        separator = ","
    return found


def tag_class_offset(text: str) -> int | None:
    """Number of characters up to and with the tag that opens the class; it follows the last region."""
    ends = [match.end() for match in _TAG_SLOT.finditer(text)]
    return ends[-1] if ends else None


def _value(text: str, start: int) -> tuple[object, int] | None:
    """The JSON value that starts at `start`, and the next position after it that is not blank."""
    try:
        value, end = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return value, _skip(text, end)


def _skip(text: str, position: int) -> int:
    match = _BLANKS.match(text, position)
    return position if match is None else match.end()
