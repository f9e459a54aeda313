"""The estimate of packed passes: as many tokens as the rows have, as much memory as autograd keeps."""

from __future__ import annotations

import pytest
import torch

from collators.packing import image_set
from models.registry import family_module
from recipes.running import Batch
from tests.collators.samples import PLAIN, make_collator, pictures
from tests.groups import grouped_records, write_groups
from tests.train.costing import estimated, saved_bytes, trainable_model
from train.cuts import Sample, packed_tokens
from train.data import load_measured
from train.memory import Launch
from train.packed_load import PackedLoad
from train.plan import Plan
from train.sizing import Workload


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def load_of(recipe, records, *, size):
    collator = make_collator(recipe, pictures(records), targets=True, share_images=True)
    lengths = collator.measure(records)
    batch = Batch(size=size, share_images=True)
    return collator, PackedLoad.of(lengths, [image_set(record) for record in records], batch, seed=0, processes=1)


@pytest.mark.parametrize("sizes", [(5,), (5, 1, 2, 9), (1, 1, 1)], ids=str)
def test_tokens_are_those_of_the_rows(sizes, make_recipe):
    """At most: samples may have a few words in common beyond their images."""
    records = grouped_records(sizes, images=12)
    collator, load = load_of(make_recipe(*PLAIN), records, size=len(records))
    row = collator(records)
    assert load.steps == 1
    assert load.mean_step(lambda length: length.images) == len(row["image_grid_thw"]) * 4
    tokens = load.mean_step(lambda length: length.total)
    assert row["input_ids"].numel() <= tokens <= 1.1 * row["input_ids"].numel()
    shape = load.largest()
    assert (shape.width, shape.images, shape.supervised) == (tokens, len(row["image_grid_thw"]) * 4, len(row["owners"]))


def test_passes_are_those_of_the_runs_first_epoch(make_recipe):
    records = grouped_records((1,) * 30)
    lengths = make_collator(make_recipe(*PLAIN), pictures(records), targets=True).measure(records)
    workload = Workload(lengths, 10, [image_set(record) for record in records])
    found = []
    for seed in (0, 7):
        recipe = make_recipe(*PLAIN, f"train.seed={seed}", "batch.size=4", "batch.share_images=true")
        samples = [
            Sample(tokens=length.total, target=length.target, images=image_set(record), prefix=length.prefix)
            for record, length in zip(records, lengths, strict=True)
        ]
        steps = Plan(samples, recipe.batch, seed=seed, processes=1, packed=True).epoch(0)
        found.append(workload.packed(recipe, Launch()).passes)
        assert found[-1] == [micro.samples for step in steps for part in step.parts for micro in part]
    assert found[0] != found[1]


def test_separate_samples_cost_what_they_do_alone(make_recipe):
    records = grouped_records((1, 1, 1, 1))
    collator, load = load_of(make_recipe(*PLAIN), records, size=4)

    def count(length):
        return length.total**2 + 3 * length.images

    assert load.mean_step(count) == sum(map(count, collator.measure(records)))


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_kept_for_the_backward_pass_of_a_packed_row(kind, make_recipe):
    recipe = make_recipe(
        *PLAIN, f"adapter={{kind: {kind}, dropout: 0.0}}" if kind == "lora" else "adapter={kind: full}"
    )
    records = grouped_records((5, 2, 1), images=12)
    collator, load = load_of(recipe, records, size=len(records))
    config = family_module(recipe.model.family).load_config(recipe.model)
    model = trainable_model(config, recipe)
    family_module(recipe.model.family).share_images(model)
    batch = collator(records)
    for name in ("labels", "owners"):
        batch.pop(name)
    active = estimated(model, recipe, load.largest())
    assert active.inputs + active.vision + active.language == pytest.approx(
        saved_bytes(model, batch, autocast=False), rel=0.08
    )


def test_a_workload_without_image_sets_is_not_packed(make_recipe):
    recipe = make_recipe(*PLAIN)
    lengths = make_collator(recipe, pictures(records := grouped_records((2,))), targets=True).measure(records)
    assert Workload(lengths, 1).packed(recipe, Launch()) is None


@pytest.mark.parametrize("system", ["{question}", "always the same"])
def test_a_beginning_of_its_own_is_counted_for_each_question(system, make_recipe, tmp_path):
    """Prompts that differ before their images share no prefix: a pass would else hold more tokens than planned."""
    prompt = tmp_path / "prompt.yaml"
    prompt.write_text(f'{{system: "{system}", user: "{{task}}?"}}')
    records = grouped_records((5, 2))
    data = write_groups(tmp_path / "data", records)
    recipe = make_recipe("codec=plain", f"prompt={{file: {prompt}}}", f"data.dataset={data}", "batch.share_images=true")
    collator = make_collator(recipe, pictures(records), targets=True, share_images=True)
    samples = load_measured(recipe, "train", collator, limit=None, quiet=True).samples
    row = collator(records)
    assert row["input_ids"].numel() <= packed_tokens(range(len(samples)), samples)
    assert len(row["groups"]) == len({sample.images for sample in samples}) == (7 if "{" in system else 2)
