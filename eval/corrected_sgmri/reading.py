"""Reading the answer to a closed question: yes or no, option letters, a number.

Each reader takes a text and gives the answer, or `Invalid` with the reason why there is none to be had. Only whole
words count, only options of the question, and an answer that contradicts itself is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from collators.codecs.base import Invalid
from eval.corrected_sgmri.places import without_places

# `no` before another word only denies that word, unless the answer opens with it.
_YES_NO = re.compile(r"(?<![\w-])(yes|no)(?![\w-])(?=(\s+(?!(?:or|and|but|nor|yes|no)\b)\w)?)", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
_MARKUP = re.compile(r"[*_`]+")
# Words after which a capital A is a letter, not an article.
_AFTER_LETTER = re.compile(
    r"\s+(?!(?:is|are|and|or|as|because|since|based|given|due|for|which|with|would|will)\b)[a-z]"
)
_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_VALUES = {word: value for value, word in enumerate(_WORDS)} | {"single": 1, "none": 0}
_COUNT = rf"(?<![\w.,-])(?:\d{{1,6}}|(?:{'|'.join(_VALUES)})(?!\s+of\b))(?!\w|[.,]\d|-\w)"
_NUMBER = re.compile(_COUNT, re.IGNORECASE)
_NUMBER_PHRASE = re.compile(
    rf"\b(?:answer|total|count)\b\s*(?:number\b\s*)?(?:is|are|of|=)?\s*:?\s*({_COUNT})", re.IGNORECASE
)
_NOTHING = re.compile(r"(?<![\w-])no(?![\w-])", re.IGNORECASE)


def read_yes_no(text: str) -> str | Invalid:
    """`Yes` or `No`.

    `Normal, note the vessels` holds neither; `yes or no` holds both; `Yes, there is no doubt` is `Yes`.
    """
    opening = re.search(r"\w", text)
    firm: set[str] = set()
    denials: set[str] = set()
    for match in _YES_NO.finditer(text):
        word = match[1].capitalize()
        denies = word == "No" and match[2] is not None and opening is not None and match.start() > opening.start()
        (denials if denies else firm).add(word)
    found = firm or denials
    if len(found) == 1:
        return found.pop()
    return Invalid("yes_and_no" if found else "no_yes_or_no")


def read_letter(text: str, options: Sequence[str]) -> str | Invalid:
    """The one option of a single choice; of several letters the one that an answer phrase names."""
    found, named = _letters(text, options)
    for letters in (found, named):
        if len(letters) == 1:
            return next(iter(letters))
    return Invalid("several_letters" if found else "no_letter")


def read_letters(text: str, options: Sequence[str]) -> frozenset[str] | Invalid:
    """The options of a multiple choice."""
    found, _ = _letters(text, options)
    return found or Invalid("no_letter")


def _letters(text: str, options: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """All letters of the text that are options, and those after an answer phrase.

    Brackets make any letter an option, and so does being the whole text. A bare one is a capital that stands alone
    between marks, opens the text, or follows a phrase such as `answer is`, `option` or `I choose`; several may be listed in its place.
    """
    one = "[" + "".join(re.escape(option) for option in options) + "]"
    bare = rf"(?<![\w'’-]){one}(?![\w'’-])"
    item = rf"(?:[(\[]\s*{one}\s*[)\]]|{bare})"
    listed = rf"{item}(?:\s*(?:,\s*and\b|,\s*or\b|,|;|/|&|\+|\band\b|\bor\b)\s*{item})*"
    # Long runs of blanks, as endless outputs have them, would take quadratic time below.
    plain = _BLANKS.sub(lambda run: "\n" if "\n" in run[0] else " ", _MARKUP.sub("", text)).strip()
    whole = re.fullmatch(rf"\W?({one})\W?\W?", plain, re.IGNORECASE)
    if whole is not None:
        return frozenset({whole[1].upper()}), frozenset()
    plain = _without_denied(plain, one)
    named: set[str] = set()
    phrase = (
        r"(?i:\b(?:answers?|options?|choices?)\b(?:\s+(?:is|are|was|would\s+be|should\s+be))?|\b(?:choose|select|pick))"
        rf"\s*[:=–-]?\s*({listed})"
    )
    for match in re.finditer(phrase, plain):
        named |= _capitals(match[1], plain[match.end() :], one)
    found = set(named)
    found.update(letter.upper() for letter in re.findall(rf"(?i)[(\[]\s*({one})\s*[)\]]", plain))
    alone = rf"(?:^|[.,:;!?\n])\s*({listed})\s*(?=$|[.,:;!?)\]\n]|(?:is|are)\b|[-–—]\s)"
    for match in re.finditer(alone, plain):
        found |= _capitals(match[1], plain[match.end() :], one)
    return frozenset(found), frozenset(named)


def _capitals(listed: str, rest: str, one: str) -> set[str]:
    """The letters of a list; a bare A before a word in small letters is an article."""
    letters = {letter.upper() for letter in re.findall(rf"(?<!\w){one}(?!\w)", listed)}
    if listed.endswith("A") and _AFTER_LETTER.match(rest):
        letters.discard("A")
    return letters


def _without_denied(text: str, one: str) -> str:
    """The text without letters that it rules out: `it is not (A)`, `rather than B`, `(C) is wrong`."""
    letter = rf"(?:(?:option|answer|choice)\s+)?(?:[(\[]\s*(?i:{one})\s*[)\]]|(?<![\w'’-]){one}(?![\w'’-]))"
    before = (
        r"(?i:\b(?:not|isn['’]t|neither|nor|rather\s+than|instead\s+of|rul(?:e|es|ed|ing)\s+out|exclud(?:e|es|ed|ing)))"
    )
    after = r"(?i:\s+(?:is|can\s+be)\s+(?:not\b|wrong\b|incorrect\b|excluded\b|ruled\s+out\b|unlikely\b)|\s+isn['’]t\b)"
    text = re.sub(rf"{before}\s+{letter}", " ", text)
    return re.sub(rf"{letter}{after}", " ", text)


def read_number(text: str) -> int | Invalid:
    """The number after an answer phrase, else the only one that is no frame number or coordinate.

    `none`, or `no` where there is no number at all, is 0.
    """
    plain = without_places(_MARKUP.sub("", text))
    for pattern, group in ((_NUMBER_PHRASE, 1), (_NUMBER, 0)):
        values = {_value(match[group]) for match in pattern.finditer(plain)}
        if len(values) == 1:
            return values.pop()
    if _NUMBER.search(plain):
        return Invalid("several_numbers")
    return 0 if _NOTHING.search(plain) else Invalid("no_number")


def _value(word: str) -> int:
    return _VALUES[word.casefold()] if word.casefold() in _VALUES else int(word)
