"""What scorers need that no formula gives: replies of a judge, and BERTScore."""

from __future__ import annotations

import msgspec


class TextMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of one answer beyond what is computed from its text.

    Attributes:
        judge_reply: The judge's reply on the answer, untouched; empty if the call failed; `None` without a judge.
        judge_reply_on_reference: Its reply on the reference compared with itself.
        bertscore_f1: BERTScore F1, rescaled with the baseline; `None` if it was not computed.
    """

    judge_reply: str | None = None
    judge_reply_on_reference: str | None = None
    bertscore_f1: float | None = None
