"""What scorers need that no formula gives: replies of a judge, and BERTScore."""

from __future__ import annotations

import msgspec


class TextMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of one answer beyond what is computed from its text.

    The two profiles compare different texts (the whole reply with the answer, and answer with answer), so each has its
    own marks; where the texts are equal they are too.

    Attributes:
        judge_reply: The judge's reply on the answer, untouched; empty if the call failed; `None` without a judge.
        judge_reply_on_reference: Its reply on the reference compared with itself.
        bertscore_f1: BERTScore F1, rescaled with the baseline; `None` if it was not computed.
        corrected_judge_reply: As `judge_reply`, on the texts that the corrected profile compares; also empty where the
            answer has no text, which is not shown to a judge.
        corrected_bertscore_f1: As `bertscore_f1`, of these texts; 0 where the answer has no text.
    """

    judge_reply: str | None = None
    judge_reply_on_reference: str | None = None
    bertscore_f1: float | None = None
    corrected_judge_reply: str | None = None
    corrected_bertscore_f1: float | None = None
