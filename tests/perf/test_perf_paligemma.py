import json
from dataclasses import asdict, replace

import pytest

from perf.__main__ import main
from perf.paligemma import CHECK, SIDES, StepSize, run_paligemma, write_inputs
from perf.paligemma_step import TRAINERS, measure_side, step_recipe
from perf.rounds import MeasurementError

SIZE = StepSize(batch=2, steps=2, pixels=28, hidden=32, layers=1, vocabulary=5000)
# The stock processor makes arrays of tensors (transformers 5.24): its own affair, ours never calls it.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("step")
    write_inputs(folder, replace(SIZE, accumulation=2))
    return folder


def test_the_model_has_as_many_rows_as_asked_for_and_one_matrix_for_embeddings_and_head(inputs):
    from models.paligemma import load_model

    model = load_model(step_recipe(SIZE, inputs).model)
    assert model.lm_head.weight.shape == (5000, 32)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert model.config.text_config.vocab_size == 5000


@pytest.mark.parametrize("accumulation", [1, 2])
def test_on_the_same_canvases_the_stock_trainer_learns_the_same(inputs, accumulation):
    size = replace(SIZE, accumulation=accumulation)
    measured = {side: measure_side(side, size, inputs) for side in TRAINERS}
    for key in ("first_loss", "last_loss"):
        assert measured["ours"][key] == pytest.approx(measured[CHECK][key], abs=1e-4)
        # The stock resizing differs by a grey level and, in single pixels, by a few.
        assert measured["ours"][key] == pytest.approx(measured["stock"][key], abs=1e-2)
    assert measured["ours"]["first_loss"] != measured["ours"]["last_loss"]


def test_last_line_is_json_with_both_sides_and_their_differences(monkeypatch, capsys):
    def here(benchmark, side, options, *, fix):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        assert main([benchmark, "--side", side, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr("perf.paligemma.measured_apart", here)
    run_paligemma(SIZE, rounds=1)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["benchmark"] == "paligemma"
    assert figures.items() >= asdict(SIZE).items()
    for key in ("seconds", "peak_mib"):
        assert set(figures[key]) == set(SIDES)
    assert figures["difference"]["first_loss"] < 1e-4
    assert figures["difference"]["last_loss"] < 1e-4
    assert figures["resizing"]["first_loss"] < 1e-2


def test_one_step_cannot_be_timed():
    with pytest.raises(MeasurementError, match="one step alone is not timed"):
        StepSize(steps=1)


@pytest.mark.slow
def test_the_stock_path_needs_what_its_logits_take(capsys):
    size = StepSize(batch=4, steps=2, pixels=56, hidden=32, layers=1, vocabulary=120_000)
    run_paligemma(size, rounds=1)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    # Logits of at least 16 image and 24 text tokens a sample, and the two tensors of their backward pass, in float32.
    logits = 3 * 4 * 4 * (16 + 24) * 120_000 / 1024**2
    assert figures["peak_mib"]["stock"]["median"] > logits
    assert figures["peak_mib"]["ours"]["median"] < logits
    assert figures["difference"]["last_loss"] < 1e-4
