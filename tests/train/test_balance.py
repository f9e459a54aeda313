"""The balanced sampler on records: what is balanced, within what, and strata that are not there."""

from collections import Counter

import pytest

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from tests.collators.samples import folder_images, make_collator
from train.data import Measured, load_measured
from train.plan import Plan


@pytest.fixture
def measure(make_recipe, phantom_data):
    def measured(*overrides: str) -> tuple[Measured, Plan]:
        recipe = make_recipe("batch.sampler=balanced", *overrides)
        collator = make_collator(recipe, folder_images(phantom_data), targets=True)
        found = load_measured(recipe, "train", collator, limit=None, quiet=True)
        return found, Plan(found.samples, recipe.batch, seed=0, processes=1)

    return measured


def test_labels_are_balanced_within_strata_and_these_keep_their_share(measure, phantom_data):
    """Else questions about the whole body, nearly all answered yes, would fill the share of yes."""
    _, plan = measure("batch.balance_within=[region_level]")
    records = list(read_records(phantom_data, "train"))
    shares = Counter((record.task, record.strata["region_level"]) for record in records)
    labels = {
        block: {r.target.label for r in records if (r.task, r.strata["region_level"]) == block} for block in shares
    }
    shown = [records[i] for step in plan.epoch(0) for part in step.parts for micro in part for i in micro.samples]
    seen = Counter((record.task, record.strata["region_level"], record.target.label) for record in shown)
    assert sum(len(found) > 1 for found in labels.values()) >= 2
    for block, share in shares.items():
        counts = [seen[(*block, label)] for label in labels[block]]
        assert sum(counts) == share
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("option", ["balance=age", "balance_within=[age]"])
def test_a_stratum_that_records_do_not_have_is_refused_with_those_they_have(measure, option):
    with pytest.raises(DataError, match=r"has no stratum 'age'; it has .*region_level") as raised:
        measure(f"batch.{option}")
    assert option.split("=")[0] in raised.value.fix
    assert "row" in raised.value.where
