import json
import shutil
from functools import partial

import pytest
import torch
from transformers import AutoProcessor

from benchmarks.errors import DataError
from perf.__main__ import main
from perf.baselines import answer_plain, train_plain, train_trl
from perf.ours import answer_ours, read_records, train_ours
from perf.rounds import MeasurementError
from perf.rows import TASKS, Row, read_rows, write_rows
from perf.stopwatch import NEW_TOKENS, Job
from perf.workload import Workload, write_workload

KEYS = ["seconds_per_question", "cpu_seconds_per_question", "peak_rss_mb", "loss", "new_tokens"]
# A last step of two questions, about a volume that the five before them share with no one.
SIZE = Workload(questions=7, slices=3, pixels=64, tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("job")
    write_workload(folder, SIZE)
    return folder


def job(folder, task, questions=SIZE.questions):
    return Job(data=folder / "data", model=folder / "model", task=task, questions=questions)


def written(folder, task, *words):
    out = folder / "out.json"
    names = ["--data", str(folder / "data"), "--model", str(folder / "model"), "--task", task, "--out", str(out)]
    assert main(["job", *names, "--questions", str(SIZE.questions), *words]) == 0
    return json.loads(out.read_text())


@pytest.mark.parametrize("task", TASKS)
def test_training_is_reported_with_the_loss_of_a_plain_loop(folder, task):
    figures = written(folder, task)
    assert list(figures) == KEYS
    assert min(figures[key] for key in KEYS[:3]) > 0
    assert figures["new_tokens"] == 0
    plain = train_plain(job(folder, task))["losses"]
    assert len(plain) == 2
    assert figures["loss"] == pytest.approx(sum(plain) / 2, abs=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_answers_are_reported_with_32_tokens_a_question(folder, task):
    figures = written(folder, task, "--infer")
    assert list(figures) == KEYS
    assert min(figures[key] for key in KEYS[:3]) > 0
    assert figures["loss"] is None
    assert figures["new_tokens"] == 32 * SIZE.questions


@pytest.mark.parametrize("out", ["missing/out.json", "folder"])
def test_figures_that_cannot_be_written_are_refused_before_the_work(tmp_path, out):
    (tmp_path / "folder").mkdir()
    words = ["job", "--data", "none", "--model", "none", "--task", "pairs", "--questions", "1"]
    with pytest.raises(MeasurementError, match="cannot be written"):
        main([*words, "--out", str(tmp_path / out)])


def test_a_missing_picture_is_named_with_its_row(tmp_path):
    write_rows(tmp_path, "pairs", [Row(id="a", images=("none.png",), question="b", answer="c")])
    with pytest.raises(DataError, match=r"none\.png does not exist") as raised:
        read_records(Job(data=tmp_path, model=tmp_path, task="pairs", questions=1))
    assert raised.value.where == f"{tmp_path / 'pairs.plain.jsonl'} row 1"


@pytest.mark.parametrize("task", TASKS)
def test_every_side_learns_the_same_in_every_step(folder, task):
    sides = (train_trl, partial(train_ours, share=False), partial(train_ours, share=True))
    plain, *others = (side(job(folder, task))["losses"] for side in (train_plain, *sides))
    assert len(plain) == 2
    assert others == [pytest.approx(plain, abs=1e-5)] * 3
    # An adapter that did not learn would leave the second step's loss where it was.
    (alone,) = train_plain(job(without_first_step(folder), task, 2))["losses"]
    assert abs(alone - plain[1]) > 1e-3


def without_first_step(folder):
    """A copy of the folder whose first rows are those of the second step."""
    copy = folder.parent / "second"
    if not copy.is_dir():
        shutil.copytree(folder, copy)
        for task in TASKS:
            write_rows(copy / "data", task, read_rows(folder / "data", task, SIZE.questions)[5:])
    return copy


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("batch", [1, 4])
def test_every_side_answers_the_same(folder, task, batch):
    ours, plain = answer_ours(job(folder, task))["answers"], answer_plain(job(folder, task), batch)["answers"]
    assert ours == plain
    assert {len(answer) for answer in ours} == {NEW_TOKENS}


def test_an_end_token_ends_no_answer(folder, tmp_path):
    """A model whose head likes the end token best goes on after it."""
    from transformers import AutoModelForImageTextToText, AutoTokenizer

    model = tmp_path / "model"
    shutil.copytree(folder / "model", model)
    weights = AutoModelForImageTextToText.from_pretrained(model)
    end = AutoTokenizer.from_pretrained(model).convert_tokens_to_ids("<|im_end|>")
    with torch.no_grad():
        head = torch.zeros_like(weights.lm_head.weight)
        head[end] = weights.model.language_model.norm.weight
        weights.config.tie_word_embeddings = weights.config.text_config.tie_word_embeddings = False
        weights.lm_head.weight = torch.nn.Parameter(head)
    weights.save_pretrained(model)
    asked = Job(data=folder / "data", model=model, task="pairs", questions=2)
    answers = answer_ours(asked)["answers"]
    assert answers == answer_plain(asked, 1)["answers"]
    assert {len(answer) for answer in answers} == {NEW_TOKENS}
    assert any(end in answer for answer in answers)


def test_tokens_are_those_before_and_after_the_end_of_the_pictures(folder):
    measured = train_ours(job(folder, "volumes"), share=True)
    # 3 pictures of 2 x 2 tokens with two marks each after <|im_start|>, user and a line break; what follows is the
    # question, its end and a line break, <|im_start|>, assistant and a line break, the answer and its end.
    tokens = {"shared": 3 + 3 * (4 + 2), "own": SIZE.tokens + 2 + 3 + 1}
    assert {key: measured[key] for key in tokens} == tokens


def test_pictures_are_shown_as_the_models_own_processor_does(folder, tmp_path):
    """One that enlarges and reduces them to 9 tokens."""
    model = tmp_path / "model"
    shutil.copytree(folder / "model", model)
    processor = AutoProcessor.from_pretrained(model)
    processor.image_processor.size = {"shortest_edge": 96 * 96, "longest_edge": 96 * 96}
    processor.save_pretrained(model)
    asked = Job(data=folder / "data", model=model, task="volumes", questions=5)
    ours = train_ours(asked, share=True)
    assert ours["losses"] == pytest.approx(train_plain(asked)["losses"], abs=1e-5)
    assert ours["shared"] == 3 + 3 * (9 + 2)


def test_pictures_may_lie_anywhere(folder, tmp_path):
    (row,) = read_rows(folder / "data", "pairs", 1)
    moved = Row(
        id=row.id,
        images=tuple(str(folder / "data" / path) for path in row.images),
        question=row.question,
        answer=row.answer,
    )
    write_rows(tmp_path, "pairs", [moved])
    there = Job(data=tmp_path, model=folder / "model", task="pairs", questions=1)
    losses = [train_ours(each, share=True)["losses"] for each in (there, job(folder, "pairs", 1))]
    assert losses[0] == losses[1]


def test_sizes_are_those_of_the_files(folder, tmp_path):
    (record,) = read_records(job(folder, "volumes", 1))
    assert {(image.width, image.height) for image in record.images} == {(64, 64)}
    write_rows(tmp_path, "pairs", [Row(id="a", images=("missing.png",), question="b", answer="c")])
    with pytest.raises(DataError, match=r"missing\.png does not exist") as raised:
        read_records(Job(data=tmp_path, model=folder / "model", task="pairs", questions=1))
    assert raised.value.where == f"{tmp_path}/pairs.plain.jsonl row 1"
