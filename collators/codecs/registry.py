"""The codecs by name."""

from __future__ import annotations

import difflib

from collators.codecs.base import Codec
from collators.codecs.plain import Plain
from collators.codecs.scintiground import ScintigroundJson, ScintigroundOldJson, ScintigroundTags
from collators.codecs.scintiground_class_first import ScintigroundClassFirst
from recipes.errors import UserError

_CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (ScintigroundJson(), ScintigroundClassFirst(), ScintigroundTags(), ScintigroundOldJson(), Plain())
}


def get_codec(name: str) -> Codec:
    """The codec of that name.

    Raises:
        UserError: There is none; the message lists the names and the nearest one.
    """
    if name in _CODECS:
        return _CODECS[name]
    near = difflib.get_close_matches(name, _CODECS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"unknown codec {name!r}{hint}", fix=f"the codecs are {', '.join(_CODECS)}")
