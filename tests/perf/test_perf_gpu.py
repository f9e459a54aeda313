import json
from dataclasses import replace

import pytest
import torch

from perf.gpu import TIME_RAN_OUT, measure_all, table
from perf.gpu_cases import GpuCase, all_cases
from perf.gpu_inputs import Processor, volume_records
from perf.gpu_measure import Lab, step_flops
from perf.gpu_models import DRY, RELEASED, build_config, check_room, random_model
from perf.gpu_peaks import BF16_PEAKS, utilisation
from perf.rounds import MeasurementError

CASES = list(all_cases())


@pytest.fixture
def lab():
    torch.set_num_threads(1)
    return Lab(dry=True)


def case_of(**changes):
    return replace(GpuCase(size="2B", kind="lora", work="train", slices=20), **changes)


def test_every_kind_is_measured_shared_and_separate():
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert case.work == "equal" or replace(case, share=not case.share) in CASES
    trained = {(case.size, case.kind) for case in CASES if case.work == "train"}
    assert {("2B", "lora"), ("8B", "lora"), ("8B", "qlora"), ("2B", "full"), ("8B", "full")} <= trained
    assert {case.slices for case in CASES if case.work == "answer"} == {20, 50}
    assert {case.kind for case in CASES if case.work == "equal"} == {"lora", "float32"}


@pytest.mark.parametrize(("name", "weights"), [("2B", 2_127_532_032), ("8B", 8_767_123_696)])
def test_models_of_real_size_have_as_many_weights_as_the_released_ones(name, weights):
    """The counts that the model pages of Qwen/Qwen3-VL-2B-Instruct and -8B-Instruct state."""
    config = build_config(RELEASED[name], Processor().tokenizer)
    model = random_model(config, case_of(size=name).recipe(), torch.device("meta"))
    assert sum(parameter.numel() for parameter in model.parameters()) == weights
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert config.text_config.rope_parameters["mrope_section"] == [24, 20, 20]


def test_what_does_not_fit_is_refused_before_it_is_made(monkeypatch, lab):
    config = build_config(RELEASED["8B"], Processor().tokenizer)
    lab.processor = Processor()
    recipe = case_of(size="8B", kind="full").recipe()
    (longest, *_) = lab._collator(recipe).measure(volume_records(1, slices=20, pixels=320))
    monkeypatch.setattr("perf.gpu_models.memory_for_run", lambda: 139 * 2**30)
    with pytest.raises(MeasurementError, match=r"take 137\.\d GiB, .* the device has 139\.0"):
        check_room(config, recipe, longest)
    check_room(config, case_of(size="8B").recipe(), longest)


@pytest.mark.parametrize("kind", ["lora", "float32"])
def test_shared_and_separate_questions_have_one_loss_and_gradient(lab, kind):
    found = lab.measure(case_of(kind=kind, work="equal"))
    loss, gradient = (1e-6, 1e-4) if kind == "float32" else (1e-3, 2e-2)
    assert found["loss_difference"] < loss
    assert found["gradient_difference"] < gradient


def test_4_bits_are_trained(lab):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    found = lab.measure(case_of(kind="qlora"))
    assert found["seconds"] > 0
    packed = [name for name, module in lab._model.named_modules() if isinstance(module, bitsandbytes.nn.Linear4bit)]
    # Seven matrices of each block of the language model.
    assert len(packed) == 7 * DRY["2B"].layers
    assert all(".language_model.layers." in name for name in packed)


def test_what_is_shared_is_counted_once(lab):
    lab.processor = Processor()
    shared, separate = (case_of(share=share).recipe() for share in (True, False))
    config = build_config(RELEASED["2B"], lab.processor.tokenizer)
    model = random_model(config, shared, torch.device("meta"))
    lengths = lab._collator(shared).measure(volume_records(1, slices=20, pixels=320))
    one = step_flops(model, separate, lengths[:1])
    assert step_flops(model, shared, lengths[:1]) == one
    five, together = (step_flops(model, recipe, lengths) for recipe in (separate, shared))
    assert five == pytest.approx(5 * one, rel=0.01)
    assert one < together < 1.25 * one
    # What checkpointing repeats is no use.
    again = shared.model_copy(update={"train": shared.train.model_copy(update={"gradient_checkpointing": True})})
    assert step_flops(model, again, lengths) == together
    # The forward pass, and the way back to frozen weights' inputs: about 4 operations a weight of the language model.
    weights = sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
    assert 4 * weights * lengths[0].total < one < 8 * weights * lengths[0].total


def test_utilisation_is_of_a_known_peak():
    assert utilisation(989e12, 2.0, "NVIDIA H200") == 0.5
    assert utilisation(1e12, 1.0, "NVIDIA Something") is None
    assert utilisation(1e12, 1.0, "cpu") is None
    assert all(1e14 < peak < 1e15 for peak in BF16_PEAKS.values())


def test_the_budget_is_kept_and_every_result_is_there_before_the_next_case(tmp_path):
    time, seen = [0.0], []

    def measure(case):
        seen.append((case, (tmp_path / "gpu.jsonl").read_text().count("\n")))
        time[0] += 100
        return {"seconds": 1.0, "questions_per_second": 5.0, "tokens_per_second": 9.0}

    results = measure_all(CASES[:8], measure, tmp_path, budget=250, title="t", now=lambda: time[0])
    # Begun at 0, 100 and 200 seconds; at 300 the budget is spent.
    assert seen == [(case, 1 + number) for number, case in enumerate(CASES[:3])]
    assert [each.get("skipped") for each in results] == [None] * 3 + [TIME_RAN_OUT] * 5
    title, *lines = map(json.loads, (tmp_path / "gpu.jsonl").read_text().splitlines())
    assert title == {"title": "t"}
    assert lines == results
    assert (tmp_path / "gpu.md").read_text() == f"t\n\n{table(CASES, results)}\n"


def test_a_case_that_fails_costs_the_others_nothing(tmp_path):
    faults, dropped = iter([MeasurementError("not here"), torch.OutOfMemoryError("too much"), KeyError("x")]), []

    def measure(case):
        error = next(faults, None)
        if error is not None:
            raise error
        return {"seconds": 1.0, "questions_per_second": 5.0}

    results = measure_all(
        CASES[:5], measure, tmp_path, budget=9, title="t", failed=lambda: dropped.append(1), now=lambda: 0.0
    )
    assert [each.get("skipped") or each.get("failed") for each in results] == [
        "MeasurementError: not here",
        "OutOfMemoryError: too much",
        "KeyError: 'x'",
        None,
        None,
    ]
    assert len(dropped) == 3
    assert "skipped: MeasurementError: not here" in (tmp_path / "gpu.md").read_text()


def test_a_table_compares_shared_with_separate():
    pair = [case for case in CASES if case.size == "8B" and case.work == "train" and case.slices == 20][:2]
    results = [
        {"case": case.name, "seconds": 1.0, "questions_per_second": speed, "utilisation": 0.415}
        for case, speed in zip(pair, (2.0, 5.0), strict=True)
    ]
    _, _, apart, together = ([cell.strip() for cell in line.split("|")] for line in table(pair, results).splitlines())
    assert apart[4] == ""
    assert together[3:7] == ["5.00", "2.50", "", "41.5%"]
