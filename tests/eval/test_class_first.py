"""Answers with the class first reach both scorers as the official ones do."""

import msgspec

from benchmarks.predictions import Prediction
from collators.codecs.registry import get_codec
from collators.codecs.scintiground_official import official_texts
from eval.evaluate import evaluate
from eval.run import load_runs
from tests.eval.cases import perfect, predict, record, text_for, write_data, write_run

NAME = "scintiground_class_first"
FIRST, OFFICIAL = get_codec(NAME), get_codec("scintiground_json")
ASKED = [
    record(number, task, label if task != "grounding" else None, views=("ANT", "POST")[: 1 + number % 2])
    for number, (task, label) in enumerate(
        [(t, w) for t, ws in (("vqa", "yes no"), ("grounded_vqa", "abnormal normal")) for w in ws.split()] * 2
        + [("grounding", "")] * 3
    )
]


def wrong(asked):
    """The target with another class, where it has one."""
    words = {"yes": "no", "no": "yes", "normal": "abnormal", "abnormal": "normal"}
    return msgspec.structs.replace(asked.target, label=words.get(asked.target.label or ""))


def answered(codec, name):
    """Right and wrong answers in turn; then an unreadable text, one for another task, and a failure."""
    rows = [
        predict(asked, codec.encode(wrong(asked) if number % 3 else asked.target, asked.ask()), codec=name)
        for number, asked in enumerate(ASKED)
    ]
    rows[0] = predict(ASKED[0], '{"task":"vqa","class":"yes"', codec=name)
    rows[1] = predict(ASKED[1], text_for(record(1, "grounding")), codec=name)
    rows[2] = Prediction(id=ASKED[2].id, error="out of memory")
    return rows


def test_the_official_text_is_the_answers_or_the_models_own_where_it_is_invalid():
    rows = answered(FIRST, NAME)
    texts = official_texts(ASKED, rows, NAME)
    assert list(texts.values()) == [row.text or "" for row in answered(OFFICIAL, OFFICIAL.name)]
    assert texts[ASKED[0].id] == '{"task":"vqa","class":"yes"'
    assert texts[ASKED[2].id] == ""
    assert rows[4].text != texts[ASKED[4].id]


def test_both_profiles_score_it_as_the_official_form(tmp_path):
    data = write_data(tmp_path / "data", ASKED)
    first = write_run(tmp_path / "first", data, answered(FIRST, NAME), codec=NAME)
    official = write_run(tmp_path / "official", data, answered(OFFICIAL, OFFICIAL.name))
    one, other = evaluate(load_runs([first, official]), resamples=50).systems
    assert one.published == other.published
    for part in ("metrics", "strata", "invalid", "confusions", "histograms"):
        assert getattr(one, part) == getattr(other, part)
    assert 0 < one.published.report["grounded_vqa"]["accuracy"] < 1


def test_perfect_answers_are_perfect_in_it(tmp_path):
    data = write_data(tmp_path / "data", ASKED)
    rows = [predict(asked, FIRST.encode(asked.target, asked.ask()), codec=NAME) for asked in ASKED]
    assert [row.answer.label for row in rows] == [perfect(asked).answer.label for asked in ASKED]
    (system,) = evaluate(load_runs([write_run(tmp_path / "run", data, rows, codec=NAME)]), resamples=50).systems
    block = system.published.report["grounded_vqa"]
    assert (block["valid_output_rate"], block["accuracy"], block["mean_iou"]) == (1.0, 1.0, 1.0)
