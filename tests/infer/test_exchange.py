"""Official submission files: out, back in, and what is refused."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.dataset import load_info, read_records, write_dataset
from benchmarks.errors import DataError
from benchmarks.predictions import (
    MANIFEST,
    PREDICTIONS,
    Manifest,
    encode_prediction,
    read_manifest,
    read_predictions,
)
from collators.codecs.registry import get_codec
from infer.engines.base import Generated
from infer.exchange import export_predictions, import_predictions
from infer.predict import to_row
from recipes.errors import UserError
from tests.collators.samples import plain_record

ODD = [
    "\u2028",
    "\u2029",
    "\x85",
    "\x0b",
    "\r",
    "\n",
    '"',
    "\\",
    "<|vision_start|>(10,20)",
    "\ufffd",
    "骨",
    "{",
    "",
    " ",
]
texts = st.lists(st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=6).map(
    "".join
)


@pytest.fixture(scope="module")
def records(phantom_data):
    return list(read_records(phantom_data, "test"))


def write_folder(folder, data, records, answers, codec="scintiground_json", **facts):
    """A finished prediction folder with these texts."""
    folder.mkdir(parents=True, exist_ok=True)
    decode = get_codec(codec).decode
    rows = [to_row(r, Generated(text=text, finish="stop"), decode) for r, text in zip(records, answers, strict=True)]
    (folder / PREDICTIONS).write_bytes(b"".join(encode_prediction(row) + b"\n" for row in rows))
    values = {"name": "m", "dataset": str(data), "dataset_hash": load_info(data).content_hash, "split": "test"}
    manifest = Manifest(**{**values, "records": len(rows), "engine": "hf", "codec": codec, **facts})
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return rows


def targets(records, codec="scintiground_json"):
    return [get_codec(codec).encode(record.target, record.ask()) for record in records]


def back(tmp_path, data, codec="scintiground_json"):
    out = import_predictions(tmp_path / "out.jsonl", data, "test", tmp_path / "back", name="x", codec=codec)
    return out.folder


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_text_comes_back_as_it_went_out(tmp_path_factory, phantom_data, records, data):
    answers = targets(records)
    for number in range(3):
        answers[number] = data.draw(texts)
    folder = tmp_path_factory.mktemp("exchange")
    rows = write_folder(folder / "run", phantom_data, records, answers)
    assert export_predictions(folder / "run", phantom_data, folder / "out.jsonl")[0] == len(records)
    again = read_predictions(back(folder, phantom_data))
    assert [(row.id, row.text, row.answer, row.invalid) for row in again] == [
        (row.id, row.text, row.answer, row.invalid) for row in rows
    ]


def test_the_official_file_is_one_line_a_record_in_dataset_order(tmp_path, phantom_data, records):
    write_folder(tmp_path / "run", phantom_data, records, targets(records))
    export_predictions(tmp_path / "run", phantom_data, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = [{"task_id": r.id, "prediction": text} for r, text in zip(records, targets(records), strict=True)]
    assert lines == expected


@pytest.mark.parametrize("codec", ["scintiground_old_json", "scintiground_class_first"])
def test_another_codecs_answers_are_written_in_the_official_form(tmp_path, phantom_data, records, codec):
    write_folder(tmp_path / "run", phantom_data, records, targets(records, codec), codec)
    export_predictions(tmp_path / "run", phantom_data, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["prediction"] for line in lines] == targets(records)


def test_a_failed_row_goes_out_empty(tmp_path, phantom_data, records):
    rows = write_folder(tmp_path / "run", phantom_data, records, targets(records))
    rows[3] = msgspec.structs.replace(rows[3], text=None, answer=None, error="gone")
    (tmp_path / "run" / PREDICTIONS).write_bytes(b"".join(encode_prediction(row) + b"\n" for row in rows))
    export_predictions(tmp_path / "run", phantom_data, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[3])["prediction"] == ""


def test_only_the_asked_records_of_a_limited_run_are_written(tmp_path, phantom_data, records):
    write_folder(tmp_path / "run", phantom_data, records[:5], targets(records[:5]), limit=5)
    assert export_predictions(tmp_path / "run", phantom_data, tmp_path / "out.jsonl")[0] == 5


def test_an_import_says_what_it_is(tmp_path, phantom_data, records):
    write_folder(tmp_path / "run", phantom_data, records, targets(records))
    export_predictions(tmp_path / "run", phantom_data, tmp_path / "out.jsonl")
    manifest = read_manifest(back(tmp_path, phantom_data))
    assert (manifest.name, manifest.engine, manifest.codec, manifest.records) == (
        "x",
        "import",
        "scintiground_json",
        len(records),
    )
    assert manifest.dataset_hash == load_info(phantom_data).content_hash


# What is refused.


def test_export_refuses_another_dataset_another_benchmark_and_missing_rows(tmp_path, phantom_data, records):
    rows = write_folder(tmp_path / "run", phantom_data, records, targets(records), dataset_hash="other")
    with pytest.raises(DataError, match="is not the one these predictions were made from"):
        export_predictions(tmp_path / "run", phantom_data, tmp_path / "out.jsonl")
    write_folder(tmp_path / "run", phantom_data, records, targets(records))
    (tmp_path / "run" / PREDICTIONS).write_bytes(b"".join(encode_prediction(row) + b"\n" for row in rows[2:]))
    with pytest.raises(DataError, match=f"2 rows are missing, first {rows[0].id}"):
        export_predictions(tmp_path / "run", phantom_data, tmp_path / "out.jsonl")
    generic = tmp_path / "generic"
    only = [plain_record("?", name="q")]
    write_dataset(generic, only, name="g", benchmark="generic", reader="generic@1", image_root=tmp_path, sources={})
    write_folder(tmp_path / "other", generic, only, ["yes"], codec="plain")
    with pytest.raises(DataError, match="benchmark 'generic' has no official submission form"):
        export_predictions(tmp_path / "other", generic, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def _drop(lines):
    return lines[:-1]


def _repeat(lines):
    return [*lines, lines[0]]


def _unknown(lines):
    return [*lines, json.dumps({"task_id": "nobody", "prediction": "x"})]


def _replace(line):
    def change(lines):
        return [lines[0], line, *lines[2:]]

    return change


@pytest.mark.parametrize(
    ("change", "message", "where"),
    [
        (_drop, "1 ids of the split are missing and 0 are unknown, first '", "out.jsonl"),
        (_unknown, "0 ids of the split are missing and 1 are unknown, first 'nobody'", "out.jsonl"),
        (_repeat, "occurs twice", "row LAST"),
        (_replace("{"), "not a line with task_id and prediction", "row 2"),
        (_replace(""), "not a line with task_id and prediction", "row 2"),
        (_replace("[]"), "not a line with task_id and prediction", "row 2"),
        (_replace('{"task_id": "a"}'), "not a line with task_id and prediction: 'prediction'", "row 2"),
        (_replace('{"task_id": "a", "prediction": 3}'), "must be texts", "row 2"),
        (_replace('{"task_id": null, "prediction": "x"}'), "must be texts", "row 2"),
        (_replace('{"task_id": "\udcff", "prediction": "x"}'), "not a line with task_id and prediction", "row 2"),
    ],
    ids=["missing", "unknown", "repeated", "broken", "empty line", "list", "no text", "number", "no id", "not utf-8"],
)
def test_import_refuses(tmp_path, phantom_data, records, change, message, where):
    lines = [
        json.dumps({"task_id": r.id, "prediction": text}) for r, text in zip(records, targets(records), strict=True)
    ]
    data = "\n".join(change(lines)) + "\n"
    (tmp_path / "out.jsonl").write_bytes(data.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError) as raised:
        back(tmp_path, phantom_data)
    assert message in raised.value.message
    assert raised.value.where.endswith(where.replace("LAST", str(len(records) + 1)))
    assert not (tmp_path / "back").exists()


def test_import_refuses_a_used_folder_and_an_unknown_codec(tmp_path, phantom_data, records):
    write_folder(tmp_path / "run", phantom_data, records, targets(records))
    export_predictions(tmp_path / "run", phantom_data, tmp_path / "out.jsonl")
    with pytest.raises(UserError, match="unknown codec 'jsn'"):
        back(tmp_path, phantom_data, codec="jsn")
    back(tmp_path, phantom_data)
    with pytest.raises(DataError, match="is not empty"):
        back(tmp_path, phantom_data)
