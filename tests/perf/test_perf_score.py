import json

from perf.score import run_score


def test_last_line_is_json_and_phases_add_up(capsys):
    run_score(rows=120, resamples=100)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["rows"] == 120
    assert set(figures["seconds"]) == {"load", "published", "corrected"}
    assert abs(sum(figures["seconds"].values()) - figures["total_seconds"]) < 0.01
