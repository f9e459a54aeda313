import json

import pytest

from perf.heads import HeadSize, run_heads
from perf.rounds import MeasurementError


def test_both_heads_agree_and_the_full_one_needs_what_its_logits_take(capsys):
    size = HeadSize(batch=2, length=100, supervised=3, hidden=16, vocabulary=30_000)
    run_heads(size, rounds=1)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["benchmark"] == "heads"
    assert (figures["length"], figures["vocabulary"]) == (100, 30_000)
    assert set(figures["seconds"]) == {"full", "targets"}
    assert figures["difference"]["loss"] < 1e-5
    assert figures["difference"]["gradients"] < 1e-5
    # Logits of all 200 positions and the two tensors of their backward pass, in float32.
    full = 3 * 4 * 2 * 100 * 30_000 / 1024**2
    assert 0.8 * full < figures["peak_mib"]["full"] < 1.5 * full
    assert figures["peak_mib"]["targets"] < 0.3 * full


def test_more_supervised_tokens_than_there_are_is_an_error():
    with pytest.raises(MeasurementError, match="20 supervised tokens do not fit into samples of 20"):
        HeadSize(length=20, supervised=20)
