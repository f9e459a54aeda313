import json
from dataclasses import asdict, replace

import pytest
import torch

from perf.__main__ import main
from perf.rounds import MeasurementError
from perf.volumes import FIGURES, SIDES, VolumeSize, growth, run_volumes, write_inputs
from perf.volumes_step import measure_side, volume_recipe, write_volumes
from tests.train.costing import peak_bytes, step
from train.prepare import prepare

SIZE = VolumeSize(slices=8, pixels=64, large=96, answer=4, hidden=32, layers=1, vocabulary=700)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("volumes")
    write_inputs(folder, SIZE)
    return folder


@pytest.mark.parametrize("slices", [2, 8])
def test_both_sides_learn_and_answer_the_same(inputs, slices):
    stock, ours = (measure_side(side, replace(SIZE, slices=slices), inputs) for side in SIDES)
    assert ours["losses"] == pytest.approx(stock["losses"], abs=1e-4)
    assert ours["losses"][0] != ours["losses"][1]
    assert ours["answer"] == stock["answer"]
    assert ours["answer"]
    # 4 tokens and at least a frame number and two marks for each slice.
    assert ours["tokens"] == stock["tokens"] > 7 * slices


def test_memory_of_a_step_grows_as_the_slices_do(inputs):
    """Nothing that autograd or a kernel allocates has an entry per pair of tokens, or of patches of two slices."""
    peaks = []
    counts = (30, 60, 90)  # so many that what does not grow is small, and numbers of two digits
    for count in counts:
        write_volumes(inputs, slices=count, pixels=128, steps=1)
        prepared = prepare(volume_recipe(replace(SIZE, slices=count, pixels=128), inputs), lambda _: None)
        batch = prepared.collator([prepared.train.records[0]])
        labels = batch.pop("labels")
        step(prepared.model.train(), batch, labels, autocast=False)
        peaks.append(peak_bytes(lambda: step(prepared.model, batch, labels, autocast=False)))  # noqa: B023
    first, second = growth(counts, peaks)
    assert second == pytest.approx(first, rel=0.01)
    assert peaks[-1] < 4 * prepared.train.lengths[0].total ** 2  # what one matrix of float32 alone would take


def test_last_line_is_json_with_both_sides_their_ratios_and_what_a_slice_takes(monkeypatch, capsys):
    def here(benchmark, side, options, *, fix):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        assert main([benchmark, "--side", side, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr("perf.volumes.measured_apart", here)
    run_volumes(SIZE, rounds=1)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["benchmark"] == "volumes"
    assert {key: figures[key] for key in asdict(SIZE)} == asdict(SIZE)
    assert set(figures["measured"]) == {f"{side} {count}" for side in SIDES for count in (2, 4, 8)}
    assert set(figures["ratios"]) == {"2", "4", "8"}
    assert set(figures["ratios"]["8"]) == set(FIGURES)
    assert set(figures["mib_per_slice"]) == set(figures["linearity"]) == set(SIDES)
    # Slices of 9 tokens in place of 4.
    assert figures["large_volume"]["tokens"] == figures["tokens"]["8"] + 5 * 8
    assert len(figures["large_volume"]["losses"]) == SIZE.steps
    assert figures["difference"]["loss"] < 1e-4
    assert figures["difference"]["answers"] == 0


def test_growth_is_per_slice():
    assert growth([15, 30, 60], [10.0, 40.0, 100.0]) == [2.0, 2.0]
    assert growth([1, 2, 4], [1.0, 4.0, 16.0]) == [3.0, 6.0]


@pytest.mark.parametrize(
    ("size", "message"),
    [({"steps": 1}, "one step alone is not timed"), ({"pixels": 100}, "slices of 100 pixels are no whole tokens")],
)
def test_what_cannot_be_measured_is_refused(size, message):
    with pytest.raises(MeasurementError, match=message):
        VolumeSize(**size)


def test_too_few_slices_are_refused():
    with pytest.raises(MeasurementError, match="a quarter of 3 slices is none"):
        run_volumes(replace(SIZE, slices=3), rounds=1)
