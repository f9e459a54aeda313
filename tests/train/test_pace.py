"""The time that a run takes, said once its first steps are timed."""

import json
from types import SimpleNamespace

import pytest
import torch

from tests.train.runs import silent
from train import pace
from train.pace import TIMED, Pace, duration
from train.prepare import prepare
from train.run import run

ARGUMENTS = SimpleNamespace(device=torch.device("cpu"))


@pytest.fixture
def schedule(make_recipe):
    """71 samples, 18 steps a pass."""
    return prepare(make_recipe(), silent).schedule


def tokens_shown(schedule, steps):
    """Tokens of the samples of some steps of the first pass."""
    epoch = schedule.epoch(0)
    shown = [i for number in steps for part in epoch[number].parts for micro in part for i in micro.samples]
    return sum(schedule.samples[i].tokens for i in shown)


def go(timer, clock, seconds, *, first=0):
    """Steps of so many seconds, with an hour of validation and saving after each."""
    for number, wait in enumerate(seconds, start=first + 1):
        state = SimpleNamespace(global_step=number)
        timer.on_step_begin(ARGUMENTS, state, None)
        clock.now += wait
        timer.on_step_end(ARGUMENTS, state, None)
        clock.now += 3600


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes when it is told to."""
    found = SimpleNamespace(now=100.0)
    monkeypatch.setattr(pace.time, "perf_counter", lambda: found.now)
    return found


@pytest.mark.parametrize("first", [0, 7])
def test_what_follows_from_the_steps_after_the_first_is_said_once(first, schedule, clock):
    lines = []
    timer = Pace(schedule, first=first, total=100, say=lines.append)
    go(timer, clock, [50, 1, 2, 3, 4, 5, 9, 9], first=first)
    tokens = tokens_shown(schedule, range(first + 1, first + 1 + TIMED))
    assert timer.facts == {
        "timed_steps": 5,
        "seconds_per_step": 3.0,
        "seconds_per_epoch": 54.0,
        "tokens_per_second": round(tokens / 15, 1),
    }
    (line,) = lines
    assert line == (
        "measured: 3.00 s per step, 54.0 s per epoch of 18 steps, about 5 min 0 s in all without validation, "
        f"{tokens / 15:,.0f} tokens/s"
    )


def test_a_short_run_is_told_from_the_steps_it_has(schedule, clock):
    lines = []
    timer = Pace(schedule, first=3, total=6, say=lines.append)
    go(timer, clock, [50, 1, 2], first=3)
    assert len(lines) == 1
    assert timer.facts["seconds_per_step"] == 1.5
    for first, steps in ((5, [50]), (6, [])):
        timer = Pace(schedule, first=first, total=6, say=lines.append)
        go(timer, clock, steps, first=first)
        assert timer.facts is None
    assert len(lines) == 1


def test_fillers_and_padding_are_no_tokens(make_recipe):
    plan = prepare(make_recipe("batch.size=4"), silent).schedule
    plan.processes, plan.per_step = 2, 5
    lengths = [sample.tokens for sample in plan.samples]
    assert sum(map(plan.tokens, plan.epoch(0))) == sum(lengths)


def test_a_run_says_it_and_its_manifest_holds_it(make_recipe, tmp_path):
    lines = []
    run(make_recipe("train.max_steps=3"), tmp_path / "run", lines.append)
    said = [line for line in lines if line.startswith("measured: ")]
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert len(said) == 1
    assert manifest["pace"]["timed_steps"] == 2
    assert f"{manifest['pace']['tokens_per_second']:,.0f} tokens/s" in said[0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4211, "0.42 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min 0 s"),
        (320.2, "5 min 20 s"),
        (3599.9, "1 h 0 min"),
        (111_900, "31 h 5 min"),
    ],
)
def test_durations_are_readable(seconds, text):
    assert duration(seconds) == text
