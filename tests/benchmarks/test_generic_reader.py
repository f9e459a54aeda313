import contextlib
import csv
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.errors import DataError
from benchmarks.readers.generic import COLUMNS, open_release, split_of
from benchmarks.readers.tables import strict_json
from benchmarks.schema import Box, decode_record, encode_record
from tests.benchmarks.cases import picture, split_items


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    picture(folder / "a.png")
    picture(folder / "sub/b.png", size=(32, 16))
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


def read(folder, text, name="rows.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return split_items(open_release(path))


FULL = {
    "images": ["a.png", "sub/b.png"],
    "question": "Where, and is it hot?",
    "answer": "Yes, it is.",
    "label": "yes",
    "boxes": [{"image": 1, "xyxy": [10, 20, 60, 80], "label": "left knee"}, {"image": 2, "xyxy": [0, 0, 32, 16]}],
    "choices": ["yes", "no"],
    "task": "grounded",
    "answer_type": "closed_ended",
    "view": ["ANT", "POST"],
    "frame": [3, 4],
    "group": "p1",
    "split": "val",
    "strata": {"organ": "knee", "age": "old"},
    "id": "q1",
}
CSV = (
    "images,question,answer,label,boxes,choices,task,answer_type,view,frame,group,split,strata,id\n"
    'a.png;sub/b.png,"Where, and is it hot?","Yes, it is.",yes,"{boxes}",yes;no,grounded,closed_ended,ANT;POST,3;4,p1,val,'
    "organ=knee;age=old,q1\n"
)


@pytest.mark.parametrize(
    "boxes",
    [
        "1,10,20,60,80,left knee;2,0,0,32,16",
        "ANT,10,20,60,80,left knee; POST, 0, 0, 32, 16",
        '[[1,10,20,60,80,""left knee""],[""POST"",0,0,32,16]]',
        '[{""image"":""ANT"",""xyxy"":[10,20,60,80],""label"":""left knee""},{""image"":2,""xyxy"":[0,0,32,16]}]',
    ],
    ids=["numbers", "views", "lists", "objects"],
)
def test_csv_and_jsonl_give_the_same_record(folder, boxes):
    from_json, faults = read(folder, json.dumps(FULL), "rows.jsonl")
    assert not faults
    from_csv, faults = read(folder, CSV.replace("{boxes}", boxes))
    assert not faults
    assert encode_record(from_csv[0]).replace(b"rows.csv", b"rows.jsonl") == encode_record(from_json[0])
    record = from_json[0]
    assert record.target.boxes == (
        Box(image=0, xyxy=(10, 20, 60, 80), label="left knee"),
        Box(image=1, xyxy=(0, 0, 32, 16)),
    )
    assert [(i.path, i.width, i.height, i.view, i.frame) for i in record.images] == [
        ("a.png", 64, 128, "ANT", 3),
        ("sub/b.png", 32, 16, "POST", 4),
    ]
    assert (record.split, record.group, record.task, record.choices) == ("val", "p1", "grounded", ("yes", "no"))
    assert record.answer_type == "closed_ended"
    assert decode_record(encode_record(record), where="") == record


def test_defaults(folder):
    [record], faults = read(folder, "question,images,answer\nWhat?,a.png,A knee.\n")
    assert not faults
    assert (record.id, record.task, record.group, record.split) == ("rows:1", "vqa", "a.png", split_of("a.png"))
    assert (record.benchmark, record.target.label, record.target.text) == ("generic", None, "A knee.")
    assert (record.source.file, record.source.row) == ("rows.csv", 1)


def test_bare_values_and_byte_order_mark_and_blank_lines(folder):
    text = "\ufeff" + '\n{"images": "a.png", "question": "What?", "answer": "x", "view": "ANT", "frame": 2}\n\n'
    [record], faults = read(folder, text, "rows.jsonl")
    assert not faults
    assert (record.images[0].view, record.images[0].frame, record.source.row) == ("ANT", 2, 2)


def test_answer_or_label_among_the_choices_becomes_the_label(folder):
    rows = "images,question,answer,label,choices\na.png,Q,yes,,yes;no\na.png,Q,Clearly so.,no,yes;no\n"
    (first, second), faults = read(folder, rows)
    assert not faults
    assert (first.target.label, first.target.text) == ("yes", "yes")
    assert (second.target.label, second.target.text) == ("no", "Clearly so.")


def test_split_hash_is_pinned_and_has_the_stated_shares():
    assert " ".join(split_of(f"patient {n}") for n in range(8)) == "train train test train train train train train"
    splits = [split_of(str(number)) for number in range(4000)]
    assert abs(splits.count("train") / 4000 - 0.8) < 0.02
    assert abs(splits.count("val") / 4000 - 0.1) < 0.02


def test_rows_of_one_group_share_a_split(folder):
    rows = "".join(f"a.png,Question {n}?,x,p{n % 7}\n" for n in range(60))
    records, _ = read(folder, "images,question,answer,group\n" + rows)
    splits = {}
    for record in records:
        assert splits.setdefault(record.group, record.split) == record.split


HEAD = "images,question,answer,label,boxes,choices,view,frame,split,strata,group\n"
ROW_FAULTS = {
    "missing image": ("none.png,Q,x", "images[1]", "none.png does not exist"),
    "broken image": ("broken.png,Q,x", "images[1]", "broken.png cannot be read"),
    "path leaving the root": ("../a.png,Q,x", "images[1]", "stay under the image root"),
    "absolute path": ("/a.png,Q,x", "images[1]", "must be relative"),
    "dot": (".,Q,x", "images[1]", "must be relative"),
    "empty question": ("a.png,,x", "row", "missing required field `question`"),
    "blank question": ('a.png,"  ",x', "row", "missing required field `question`"),
    "no image": (",Q,x", "row", "missing required field `images`"),
    "nothing to learn": ("a.png,Q,", "answer", "no answer, label or boxes"),
    "label not a choice": ("a.png,Q,x,maybe,,yes;no", "label", "'maybe' is not one of the choices"),
    "answer not a choice": ("a.png,Q,x,,,yes;no", "answer", "'x' is not one of the choices"),
    "unknown split": ("a.png,Q,x,,,,,,dev", "row", "$.split"),
    "views for another number of images": ("a.png,Q,x,,,,ANT;POST", "view", "2 values for 1 images"),
    "frames for another number of images": ("a.png,Q,x,,,,,1;2", "frame", "2 values for 1 images"),
    "frame not a number": ("a.png,Q,x,,,,,one", "", "column 'frame', cell 'one'"),
    "frame 0": ("a.png,Q,x,,,,,0", "images[1]", "frames are numbered from 1"),
    "box of image 0": ('a.png,Q,x,,"0,1,2,3,4"', "boxes[1]", "numbered from 1 to 1"),
    "box of image 2": ('a.png,Q,x,,"2,1,2,3,4"', "boxes[1]", "numbered from 1 to 1"),
    "box of an unknown view": ('a.png,Q,x,,"PST,1,2,3,4",,ANT', "boxes[1]", "not the view of exactly one image"),
    "box of three numbers": ('a.png,Q,x,,"1,2,3,4"', "", "image,x1,y1,x2,y2"),
    "box not numeric": ('a.png,Q,x,,"1,a,2,3,4"', "", "column 'boxes'"),
    "box inverted": ('a.png,Q,x,,"1,9,2,3,4"', "boxes[1]", "empty or inverted"),
    "box not finite": ('a.png,Q,x,,"1,nan,2,3,4"', "boxes[1]", "not a finite number"),
    "box JSON broken": ('a.png,Q,x,,"[1,2"', "", "column 'boxes'"),
    "box object with another key": ('a.png,Q,x,,"[{""image"":1,""bbox"":[1,2,3,4]}]"', "row", "unknown field `bbox`"),
    "strata without equals": ("a.png,Q,x,,,,,,,knee", "", "key=value"),
    "strata not text": ('a.png,Q,x,,,,,,,"{""age"": 5}"', "row", "$.strata"),
    "too many cells": ("a.png,Q,x,,,,,,,,g,extra", "", "12 cells for 11 columns"),
}


@pytest.mark.parametrize(("row", "field", "message"), ROW_FAULTS.values(), ids=ROW_FAULTS)
def test_faulty_csv_row_is_named_and_the_others_are_read(folder, row, field, message):
    row += "," * (HEAD.count(",") + 1 - len(next(csv.reader([row]))))
    records, faults = read(folder, HEAD + "a.png,Good?,x,,,,,,,,\n" + row + "\n" + "sub/b.png,Good?,x,,,,,,,,\n")
    assert [record.source.row for record in records] == [1, 3]
    [fault] = faults
    assert message in fault.message
    assert "rows.csv row 2" in fault.where
    assert fault.where.endswith(f"field {field}" if field else "row 2")
    assert fault.fix


JSON_FAULTS = {
    "not JSON": ("{", "not JSON"),
    "not an object": ("[1]", "not a JSON object"),
    "NaN": ('{"images": NaN}', "not JSON"),
    "half surrogate": ('{"images": "a.png", "question": "\\ud800", "answer": "x"}', "not JSON"),
    "deep nesting": ("[" * 100_000, "nested too deeply"),
    "key twice": ('{"question": "a", "question": "b"}', "'question' occurs twice"),
    "unknown key": ('{"image": "a.png", "question": "Q", "answer": "x"}', "did you mean 'images'?"),
    "number as question": ('{"images": "a.png", "question": 5, "answer": "x"}', "$.question"),
    "truth value as image": ('{"images": true, "question": "Q", "answer": "x"}', "$.images"),
    "blank question": ('{"images": "a.png", "question": " ", "answer": "x"}', "question is empty"),
    "no images": ('{"images": [], "question": "Q", "answer": "x"}', "the row has no image"),
    "blank group": ('{"images": "a.png", "question": "Q", "answer": "x", "group": ""}', "group is empty"),
    "box of five": ('{"images": "a.png", "question": "Q", "boxes": [[1, 2, 3, 4]]}', "$.boxes[0]"),
    "huge box": ('{"images": "a.png", "question": "Q", "boxes": [[1, 2, 3, 4, 1e999]]}', "not JSON"),
}


@pytest.mark.parametrize(("line", "message"), JSON_FAULTS.values(), ids=JSON_FAULTS)
def test_faulty_json_line_is_named(folder, line, message):
    records, faults = read(folder, line + "\n", "rows.jsonl")
    assert not records
    [fault] = faults
    assert message in fault.message
    assert "rows.jsonl row 1" in fault.where


FILE_FAULTS = {
    "unknown column": ("rows.csv", b"image,question\n", "unknown column 'image', did you mean 'images'?"),
    "column missing": ("rows.csv", b"images,answer\n", "column 'question' is missing"),
    "column twice": ("rows.csv", b"images,question,question\n", "column 'question' occurs twice"),
    "semicolons": ("rows.csv", b"images;question;answer\n", "separated by semicolons: images;question;answer"),
    "empty": ("rows.csv", b"", "the file is empty"),
    "Latin-1": ("rows.csv", "images,question\na.png,Größe?\n".encode("latin-1"), "not UTF-8: byte 24 is 0xf6"),
    "another kind of file": ("rows.xlsx", b"", "not a .jsonl or .csv file"),
}


@pytest.mark.parametrize(("name", "data", "message"), FILE_FAULTS.values(), ids=FILE_FAULTS)
def test_unusable_file_is_refused_when_opened(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError) as caught:
        open_release(tmp_path / name)
    assert message in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        open_release(tmp_path / "none.csv")


def test_broken_quotes_stop_with_a_fault(folder):
    records, faults = read(folder, 'images,question,answer\na.png,Q,x\na.png,"Q,x\na.png,Q,x\n')
    assert len(records) == 1
    assert "reading stopped here" in faults[0].message
    assert "row 2" in faults[0].where


def test_manual_names_every_column():
    import benchmarks.readers.generic as module

    assert all(f"| {name:<8} |" in module.__doc__ or f"| {name} |" in module.__doc__ for name in COLUMNS)


WORDS = ["images", "question", "answer", "boxes", "view", "frame", "split", "strata", "choices", "a.png", "sub/b.png"]
MARKS = [*',;"=1{}[]:\n\0\r', "-1", "1e5", "nan", "null", "true", "val"]
fragments = st.sampled_from(WORDS) | st.sampled_from(MARKS) | st.text(max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda children: st.lists(children, max_size=6) | st.dictionaries(st.text(max_size=6), children, max_size=3),
    max_leaves=8,
)


def survives(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    with contextlib.suppress(DataError):
        for record in split_items(open_release(path))[0]:
            assert decode_record(encode_record(record), where="") == record


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.lists(fragments, max_size=40), head=st.booleans(), name=st.sampled_from(["f.csv", "f.jsonl"]))
def test_no_text_makes_the_reader_fail_otherwise(folder, body, head, name):
    text = (HEAD if head else "") + "".join(body)
    survives(folder, name, text.encode("utf-8", "surrogatepass"))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=60), name=st.sampled_from(["f.csv", "f.jsonl"]))
def test_no_bytes_make_the_reader_fail_otherwise(folder, data, name):
    survives(folder, name, data)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(COLUMNS), json_values, max_size=4))
def test_no_values_make_the_reader_fail_otherwise(folder, changes):
    survives(folder, "f.jsonl", json.dumps(FULL | changes).encode())


@settings(max_examples=50)
@given(json_values)
def test_strict_json_reads_all_of_json(value):
    text = json.dumps(value)
    with contextlib.suppress(ValueError):
        assert strict_json(text) == value
