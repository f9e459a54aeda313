from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoProcessor, AutoTokenizer, Qwen3VLForConditionalGeneration

from benchmarks.errors import DataError
from benchmarks.images import open_image
from perf.__main__ import main
from perf.rounds import MeasurementError
from perf.rows import TASKS, Row, read_rows, write_rows
from perf.workload import Workload, write_data, write_model, write_workload

SIZE = Workload(questions=7, slices=3, pixels=64, tokens=9)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


def test_the_model_has_as_many_weights_as_stated(model):
    from perf import workload

    weights = Qwen3VLForConditionalGeneration.from_pretrained(model)
    assert f"{sum(parameter.numel() for parameter in weights.parameters()):,}" == "4,961,312"
    assert "4,961,312" in workload.__doc__
    assert weights.lm_head.weight.shape == (8192, 192)


@pytest.mark.parametrize("tokens", [2, 9, 40, 200])
def test_question_and_answer_have_as_many_tokens_as_asked_for(model, tmp_path, tokens):
    write_data(tmp_path, model, Workload(questions=6, slices=1, pixels=32, tokens=tokens))
    tokenizer = AutoTokenizer.from_pretrained(model)
    for task in TASKS:
        for row in read_rows(tmp_path, task, 6):
            counts = [len(tokenizer(text)["input_ids"]) for text in (row.question, row.answer)]
            assert min(counts) > 0
            assert sum(counts) == tokens


def test_five_rows_share_a_volume_and_each_pair_is_its_own(model, tmp_path):
    write_data(tmp_path, model, SIZE)
    volumes, pairs = (read_rows(tmp_path, task, SIZE.questions) for task in TASKS)
    assert [before.images == after.images for before, after in pairwise(volumes)] == [True] * 4 + [False] + [True]
    assert {len(row.images) for row in volumes} == {SIZE.slices}
    assert {len(row.images) for row in pairs} == {2}
    assert len({path for row in pairs for path in row.images}) == 2 * SIZE.questions
    for rows in (volumes, pairs):
        assert len({row.id for row in rows}) == len({(row.question, row.answer) for row in rows}) == SIZE.questions
    processor = AutoProcessor.from_pretrained(model)
    paths = {path for row in (*volumes, *pairs) for path in row.images}
    pictures = [open_image(tmp_path / path) for path in paths]
    assert {picture.size for picture in pictures} == {(64, 64)}
    assert len({picture.tobytes() for picture in pictures}) == len(paths)
    grids = processor.image_processor(pictures, return_tensors="pt")["image_grid_thw"]
    assert (grids.prod(dim=1) == 4 * 4).all()  # 2 x 2 tokens: not resized


def test_the_same_sizes_give_the_same_bytes(tmp_path):
    written = []
    for name in ("a", "b"):
        write_workload(tmp_path / name, SIZE)
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        written.append({str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files})
    assert written[0] == written[1]


def test_the_command_writes_both_folders(tmp_path):
    assert main(["workload", "--out", str(tmp_path), "--questions", "1", "--slices", "1", "--pixels", "32"]) == 0
    assert len(read_rows(tmp_path / "data", "pairs", 1)) == 1
    assert (tmp_path / "model" / "config.json").is_file()


@settings(deadline=None)
@given(st.lists(st.builds(Row, id=st.text(), images=st.tuples(st.text()), question=st.text(), answer=st.text())))
def test_rows_are_read_as_written(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    write_rows(folder, "pairs", rows)
    assert read_rows(folder, "pairs", len(rows)) == rows


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match="cannot be read") as raised:
        read_rows(tmp_path, "volumes", 1)
    assert raised.value.where == str(tmp_path / "volumes.plain.jsonl")
    write_rows(tmp_path, "volumes", [Row(id="a", images=("b",), question="c", answer="d")])
    with pytest.raises(DataError, match="1 rows, 2 questions"):
        read_rows(tmp_path, "volumes", 2)
    (tmp_path / "volumes.plain.jsonl").write_text('{"id": "a", "images": ["b"], "question": "c"}\n')
    with pytest.raises(DataError, match=r"not a row.*answer") as raised:
        read_rows(tmp_path, "volumes", 1)
    assert raised.value.where.endswith("volumes.plain.jsonl row 1")
    write_rows(tmp_path, "volumes", [Row(id="a", images=(), question="c", answer="d")])
    with pytest.raises(DataError, match=r"not a row.*images"):
        read_rows(tmp_path, "volumes", 1)


@pytest.mark.parametrize(("size", "message"), [({"pixels": 100}, "no whole tokens"), ({"tokens": 1}, "no question")])
def test_sizes_that_make_no_rows_are_refused(size, message):
    with pytest.raises(MeasurementError, match=message):
        Workload(**size)


@pytest.mark.parametrize("field", ["questions", "slices", "group", "pixels"])
@pytest.mark.parametrize("value", ["0", "-32", "many"])
def test_sizes_are_positive_whole_numbers(tmp_path, capsys, field, value):
    with pytest.raises(SystemExit, match="2"):
        main(["workload", "--out", str(tmp_path), f"--{field}={value}"])
    assert f"--{field}: {value if value != 'many' else repr(value)} is no" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
