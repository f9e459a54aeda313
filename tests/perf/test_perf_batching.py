import json
from types import SimpleNamespace

from benchmarks.dataset import read_records
from benchmarks.schema import Answer
from infer.engines.base import Generated
from perf.batching import Gap, compare, run_batching
from recipes.load import dump_recipe


def test_texts_do_not_depend_on_the_batch_in_float32_and_the_gap_in_16_bits_is_said(
    tiny, phantom_data, make_recipe, tmp_path, capsys
):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(dump_recipe(make_recipe(f"model.checkpoint={tiny}", "decoding.max_new_tokens=12")))
    run_batching(str(tiny), phantom_data, split="test", recipe=str(recipe), limit=6, batch=3)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["types"]["float32"] | {"score": None} == {"questions": 6, "texts": 0, "answers": 0, "score": None}
    assert 0 <= figures["types"]["bfloat16"]["texts"] <= 6


def test_other_texts_answers_and_scores_are_counted_apart(phantom_data):
    records = [record for record in read_records(phantom_data, "test") if record.task == "vqa"][:3]
    system = SimpleNamespace(encoder=SimpleNamespace(decode=lambda text, _: Answer(text=text.strip())))
    alone = [Generated(text=text, label_scores={"yes": -1.0}) for text in ("a", "a", "a")]
    together = [
        Generated(text=text, label_scores={"yes": score}) for text, score in (("a", -1.5), ("a ", -9), ("b", 0))
    ]
    assert compare(system, records, alone, together) == Gap(questions=3, texts=2, answers=1, score=0.5)
