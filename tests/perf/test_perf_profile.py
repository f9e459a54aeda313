import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perf.__main__ import main
from perf.bare import trainer_of
from perf.phase_hooks import (
    BATCHES,
    HEAD,
    HEAD_BACK,
    LANGUAGE,
    LANGUAGE_BACK,
    NEW_TOKENS,
    OPTIMISER,
    PREPARING,
    READING,
    VISION,
    VISION_BACK,
    time_trainer,
)
from perf.phases import REST, PhaseClock, added
from perf.profile import CASES, run_profile
from perf.profile_side import MEASURES, prepared_job, profile_training
from perf.stopwatch import Job
from perf.workload import Workload, write_workload

SIZE = Workload(questions=10, slices=2, pixels=32, tokens=6)
IN_TRAINING = {READING, PREPARING, BATCHES, VISION, LANGUAGE, HEAD, HEAD_BACK, LANGUAGE_BACK, OPTIMISER, REST}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("workload")
    write_workload(folder, SIZE)
    return Job(data=folder / "data", model=folder / "model", task="volumes", questions=SIZE.questions)


class Ticks:
    """A clock that is told the time."""

    def __init__(self):
        self.time = 0

    def __call__(self):
        return self.time

    def fail(self, at):
        self.time = at
        raise KeyError


events = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "lap"]), st.integers(0, 9)), max_size=30)


@settings(deadline=None)
@given(events)
def test_every_moment_belongs_to_one_phase(events):
    ticks = Ticks()
    clock = PhaseClock(now=ticks)
    spent, current, laps = {}, REST, []
    for name, passed in events:
        ticks.time += passed
        spent[current] = spent.get(current, 0) + passed
        if name == "lap":
            clock.lap()
            laps.append({phase: seconds for phase, seconds in spent.items() if seconds})
            spent = {}
        else:
            clock.enter(name)
            current = name
    found = [{phase: seconds for phase, seconds in lap.items() if seconds} for lap in clock.laps()]
    assert found == laps
    assert sum(added(found).values()) == (clock.lap_ends[-1] if laps else 0)


def test_a_phase_inside_another_is_taken_off_it_even_after_an_error():
    ticks = Ticks()
    clock = PhaseClock(now=ticks)
    clock.enter("outer")
    ticks.time = 1
    with pytest.raises(KeyError), clock.phase("inner"):
        ticks.fail(at=5)
    ticks.time = 7
    clock.lap()
    assert clock.current == "outer"
    assert clock.laps() == [{REST: 0, "outer": 3, "inner": 4}]


def test_on_a_gpu_events_are_read_once_the_device_is_through(monkeypatch):
    """Stands in for CUDA: the device reaches an event two seconds after the program has put it there."""
    ticks, waited = Ticks(), []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            self.reached = ticks.time + 2

        def elapsed_time(self, other):
            assert waited
            return 1000.0 * (other.reached - self.reached)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))
    clock = PhaseClock(torch.device("cuda"), now=ticks)
    ticks.time = 1
    with clock.phase(VISION):
        ticks.time = 5
    clock.lap()
    assert not waited
    assert clock.laps() == [{REST: 1.0, VISION: 4.0}]


@pytest.mark.parametrize("share", [True, False])
def test_a_step_has_every_phase_and_no_backward_pass_through_a_frozen_tower(job, share):
    (part,) = profile_training(job, share=share).values()
    assert set(part["phases"]) - {"copying to the device"} == IN_TRAINING
    assert sum(part["phases"].values()) == pytest.approx(part["seconds"])
    assert min(part["phases"].values()) > -1e-3
    # Nothing of weight is left over: what this tiny model computes is still most of a step.
    assert part["phases"][REST] < part["seconds"] / 2


def test_profiling_changes_no_loss(job):
    losses = []
    for timed in (False, True):
        with prepared_job(job, share=True) as prepared:
            trainer = trainer_of(prepared, job.data)
            if timed:
                time_trainer(PhaseClock(), trainer)
            trainer.train()
            losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2


def test_a_trained_tower_has_its_own_way_back(job):
    overrides = ("adapter={kind: full}", "train.gradient_checkpointing=true")
    with prepared_job(job, share=False, overrides=overrides) as prepared:
        trainer = trainer_of(prepared, job.data)
        clock = PhaseClock()
        time_trainer(clock, trainer)
        trainer.train()
        phases = added(clock.laps()[1:])
    assert phases[VISION_BACK] > 0
    assert set(phases) - {"copying to the device"} == IN_TRAINING | {VISION_BACK}


def test_with_a_vision_cache_the_second_epoch_sees_and_opens_nothing(job):
    first, second = profile_training(job, share=True, epochs=2, cache=True).values()
    assert first["phases"][VISION] > 0
    assert VISION not in second["phases"]
    assert PREPARING not in second["phases"]
    assert second["phases"][LANGUAGE] > 0


@pytest.mark.parametrize("side", ["answer-shared", "answer-separate"])
def test_an_answer_has_its_prompt_and_its_new_tokens(job, side):
    (part,) = MEASURES[side](job).values()
    assert set(part["phases"]) == {READING, PREPARING, BATCHES, VISION, LANGUAGE, NEW_TOKENS, HEAD, REST}
    assert sum(part["phases"].values()) == pytest.approx(part["seconds"])


def test_the_report_has_a_column_for_every_side_and_epoch(monkeypatch, capsys, tmp_path):
    def here(benchmark, side, options, *, fix):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        assert main([benchmark, "--side", side, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr("perf.comparison.measured_apart", here)
    run_profile({name: replace(case, size=SIZE) for name, case in CASES.items()}, rounds=1, threads=1, out=tmp_path)
    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])
    assert json.loads((tmp_path / "profile.json").read_text()) == figures
    assert printed.startswith((tmp_path / "profile.md").read_text())
    columns = ["train separate", "train cached epoch 1", "train cached epoch 2", "answer separate"]
    assert list(figures["cases"]["pairs"]["parts"]) == columns
    assert list(figures["cases"]["volumes"]["parts"]) == [
        "train shared",
        *columns[:3],
        "answer shared",
        "answer separate",
    ]
    table = [line for line in printed.splitlines() if line[:1] == "|"]
    phases = {line.split("|")[1].strip() for line in table}
    assert {"s/question", "all", REST, VISION, NEW_TOKENS} < phases
