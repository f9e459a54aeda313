"""The report page: it holds every number and case, and nothing from data becomes markup."""

import base64
import io
import json
import subprocess
import sys

import msgspec
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Box, Image
from eval.evaluate import evaluate
from eval.report import render_report, write_report
from eval.report_cases import choose_cases, verdict
from eval.report_details import published_numbers, reach, strata_tables
from eval.report_figures import HEIGHT, LEFT, RIGHT, TOP, WIDTH, iou_histogram, nice_ticks, score_curve, training_curve
from eval.report_format import interval, number, p_value, signed, visible
from eval.report_gallery import MAX_VIEWS, build_gallery
from eval.report_history import find_history, read_history
from eval.report_pictures import MAX_SIDE, PictureStore, data_uri
from eval.report_tables import headline_tables
from eval.run import load_runs
from eval.schema import Comparison, System
from eval.schema_scores import IouHistogram, RowResult
from eval.tally import histogram
from tests.eval.cases import perfect, predict, record, text_for, write_data, write_run
from tests.eval.pages import Page, check_safe


@pytest.fixture
def records():
    found = []
    for i in range(12):
        group = f"p{i // 2}"
        found.append(record(f"v{i}", "vqa", "yes" if i % 4 == 0 else "no", group=group))
        found.append(record(f"l{i}", "grounding", group=group, views=("ANT", "POST"), region="pelvis"))
        found.append(record(f"g{i}", "grounded_vqa", "abnormal" if i % 3 == 0 else "normal", group=group))
    return found


@pytest.fixture
def data(tmp_path, records):
    folder = write_data(tmp_path / "data", records)
    for view, shade in (("ANT", 40), ("POST", 90)):
        PIL.Image.new("L", (64, 128), shade).save(folder / f"{view}.png")
    return folder


@pytest.fixture
def runs(tmp_path, data, records):
    good = [perfect(r) for r in records]
    good[0] = predict(records[0], "```json\n" + text_for(records[0]) + "\n```")
    good[1] = Prediction(id=records[1].id, error="out of memory <here>")
    good[2] = predict(records[2], text_for(records[2], by_view={"ANT": [40, 90, 60, 120]}))
    poor = [
        predict(r, text_for(r, label="no"))
        if r.task == "vqa"
        else predict(r, text_for(r, by_view={b.view: [0, 0, 9, 9] for b in _views(r)}))
        for r in records
    ]
    write_run(tmp_path / "good", data, good)
    write_run(tmp_path / "poor", data, poor, control="majority", engine="control", encoder_fingerprint=None)
    return load_runs([tmp_path / "good", tmp_path / "poor"])


def _views(asked):
    images = [asked.images[box.image] for box in asked.target.boxes]
    return [msgspec.structs.replace(i, view="PST") if i.view == "POST" else i for i in images]


def render(runs, **options):
    return Page(render_report(evaluate(runs, resamples=100, **options), runs))


def test_page_holds_every_section(runs):
    page = render(runs)
    check_safe(page)
    for words in (
        "not for clinical use",
        "36 records of 6 patients",
        "Published, not run here, other data than above",
        "Qwen3-VL-2B (paper)",
        "good minus poor",
        "What corrected changes",
        "unanswered_negative",
        "Confusion matrix",
        "20 bins of width .050",
        "IoU sweep",
        "by view_scope",
        "How the predictions were made",
        "invalid_json",
        "out of memory <here>",
    ):
        assert words in page.text


def test_page_is_the_same_each_time(runs):
    result = evaluate(runs, resamples=100)
    assert render_report(result, runs) == render_report(result, runs)


def test_failed_rows_and_partial_runs_are_alarms(tmp_path, data, records, runs):
    alarms = [a for a in render(runs).with_class("alarm") if a.get("role") == "alert"]
    assert len(alarms) == 1
    folder = write_run(tmp_path / "part", data, [perfect(r) for r in records[:9]], limit=9)
    page = render(load_runs([folder]))
    assert "PARTIAL: only the first 9 records" in page.text
    assert len(page.with_class("alarm")) == 1


def test_comparison_marks_the_best_system_but_no_published_row(runs):
    tables = {(t.title, t.profile): t for t in headline_tables(evaluate(runs, resamples=100))}
    assert len(tables) == 6
    table = tables["grounding", "corrected"]
    good, poor = table.rows
    assert (good.kind, poor.kind, good.mark, poor.mark) == ("system", "control", "a", "")
    place = table.columns.index("mean_iou")
    assert (good.cells[place].best, poor.cells[place].best) == (True, False)
    assert good.cells[place].low <= good.cells[place].value <= good.cells[place].high
    assert (good.records, good.errors, poor.records) == (11, 1, 12)
    both = tables["vqa", "corrected"]
    share = both.columns.index("majority_share")
    assert not any(row.cells[share].best for row in both.rows)
    published = tables["grounding", "published"]
    papers = [row for row in published.rows if row.kind == "published"]
    assert {row.name for row in papers} == {"Qwen3-VL-2B (paper)", "PaliGemma-3B (paper)"}
    assert not any(cell.best for row in papers for cell in row.cells if cell)
    assert papers[0].cells[published.columns.index("strict")].value == 0.827


def test_equal_values_are_all_best(runs):
    table = headline_tables(evaluate([runs[1], runs[1]], resamples=100))[0]
    assert [row.cells[0].best for row in table.rows] == [True, True]


def test_published_scorer_that_stops_is_named(tmp_path, data, records):
    rows = [perfect(r) for r in records]
    rows[4] = predict(records[4], text_for(records[4], boxes=None))
    page = render(load_runs([write_run(tmp_path / "run", data, rows)]))
    assert f"the published scorer stops with TypeError at {records[4].id}" in page.text
    check_safe(page)


def test_published_numbers_keep_the_published_names(runs):
    system = evaluate(runs, resamples=100).systems[1]
    names = {key: (value, cell) for key, value, cell in published_numbers(system, "vqa")}
    assert names["rows"][0] == 12
    assert names["confusion.fn"][0] == 3
    assert names["balanced_accuracy"][1].low is not None
    assert names["accuracy"][1].low is None


def test_strata_hold_their_own_counts(runs):
    tables = {(t.task, t.key): t for t in strata_tables(evaluate(runs, resamples=100).systems[1])}
    (row,) = tables["grounding", "view_scope"].rows
    assert row[0] == "BOTH"
    assert row[2:] == (12, 6)


def test_cases_show_verdict_boxes_and_text(runs, records):
    gallery = build_gallery(evaluate(runs, resamples=100).systems, runs)
    assert (gallery.cases, gallery.records, len(gallery.cards)) == (36, 36, 72)
    by_key = {(card.system, card.record.id): card for card in gallery.cards}
    assert by_key["good", records[0].id].verdict == "invalid"
    assert by_key["good", records[0].id].text.startswith("```json")
    assert by_key["good", records[1].id].verdict == "error"
    wrong = by_key["good", records[2].id]
    assert wrong.verdict == "wrong"
    assert wrong.views[0].targets[0].title == "target left knee [10, 10, 20, 20], IoU .000"
    assert wrong.views[0].predicted[0].title == "predicted left knee [40, 90, 60, 120], IoU .000"
    assert (wrong.views[0].predicted[0].width, wrong.views[0].predicted[0].height) == (20, 30)
    assert by_key["good", records[3].id].verdict == "right"
    assert [view.title for view in wrong.views] == ["ANT", "POST"]
    # Two views, whatever the number of cases and systems.
    assert len(gallery.pictures) == 2
    assert gallery.regions == ("left knee", "pelvis")


def test_pictures_are_embedded_once(runs):
    page = render(runs)
    assert len([tag for tag, attrs in page.tags if tag == "image"]) == 2
    uses = {attrs["href"] for tag, attrs in page.tags if tag == "use"}
    assert uses == {"#picture-0", "#picture-1"}
    assert {attrs["data-verdict"] for attrs in page.cases()} == {"right", "wrong", "invalid", "error"}


def test_missing_and_broken_images_do_not_stop_the_report(data, runs):
    (data / "ANT.png").unlink()
    (data / "POST.png").write_bytes(b"no picture")
    page = render(runs)
    assert "image not found" in page.text
    assert "image cannot be shown: image file" in page.text
    assert "Image files that cannot be shown: 2." in page.text
    assert page.with_class("target")
    check_safe(page)


def test_images_outside_the_root_are_not_embedded(tmp_path):
    (tmp_path / "secret").mkdir()
    PIL.Image.new("L", (8, 8)).save(tmp_path / "secret" / "s.png")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "secret")
    store, image = PictureStore(tmp_path / "root"), Image(path="link/s.png", width=8, height=8)
    assert store.add([image], where="record r")
    picture = store.get(image)
    assert picture.uri == ""
    assert "leaves the image root" in picture.problem


def test_pictures_are_scaled_and_budgeted(tmp_path):
    def decode(uri):
        kind, _, text = uri.removeprefix("data:image/").partition(";base64,")
        return kind, PIL.Image.open(io.BytesIO(base64.b64decode(text)))

    kind, small = decode(data_uri(PIL.Image.new("RGB", (64, 128), (9, 9, 9))))
    assert (kind, small.size, small.mode, small.getpixel((0, 0))) == ("png", (64, 128), "L", 9)
    kind, large = decode(data_uri(PIL.Image.new("RGB", (256, 1024), (9, 90, 9))))
    assert (kind, large.size, large.mode) == ("jpeg", (MAX_SIDE // 4, MAX_SIDE), "RGB")
    PIL.Image.new("L", (16, 16)).save(tmp_path / "a.png")
    PIL.Image.new("L", (16, 16)).save(tmp_path / "b.png")
    first, second = (Image(path=name, width=16, height=16) for name in ("a.png", "b.png"))
    size = len(data_uri(PIL.Image.new("L", (16, 16))))
    store = PictureStore(tmp_path, budget=2 * size - 1)
    assert not store.add([first, second], where="record r")
    assert store.pictures == []
    assert store.add([first, first], where="record r")
    assert not store.add([second], where="record r")
    assert store.add([first], where="record s")
    assert [picture.image for picture in store.pictures] == [first]


def row(**fields):
    return RowResult(**({"id": "r", "task": "t", "group": "g", "valid": True} | fields))


@pytest.mark.parametrize(
    ("expected", "fields"),
    [
        ("right", {"class_correct": True}),
        ("right", {"class_correct": True, "ious": (0.5, 0.9)}),
        ("right", {"ious": (0.5,), "region_correct": False}),
        ("wrong", {"class_correct": False, "ious": (0.9,)}),
        ("wrong", {"class_correct": True, "ious": (0.9, 0.49)}),
        ("wrong", {"ious": (0.9,), "extra_boxes": 1}),
        ("invalid", {"valid": False, "reason": "invalid_json", "class_correct": False}),
        ("error", {"valid": False, "error": "failed", "reason": "error"}),
        ("not scored", {}),
    ],
)
def test_verdict(expected, fields):
    assert verdict(row(**fields)) == expected


def fake_system(name, rows):
    manifest = None
    return System(name=name, folder="", control=None, encoder_mark="", manifest=manifest, errors=[], rows=rows)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_chosen_cases_are_all_records_once_and_any_head_is_balanced(drawn):
    kinds = [{"class_correct": True}, {"class_correct": False}, {"valid": False}, {"valid": False, "error": "e"}]
    systems = [
        fake_system(str(s), [row(id=str(i), task=d[0], **kinds[d[1 + s]]) for i, d in enumerate(drawn)]) for s in (0, 1)
    ]
    order = list(choose_cases(systems))
    assert sorted(order) == list(range(len(drawn)))
    buckets = {(s, r.task, verdict(r)) for s, system in enumerate(systems) for r in system.rows}
    head = order[: len(buckets)]
    covered = {(s, system.rows[i].task, verdict(system.rows[i])) for i in head for s, system in enumerate(systems)}
    assert covered == buckets


def test_records_with_many_images_show_those_with_boxes_first(tmp_path):
    images = tuple(Image(path=f"{i}.png", width=32, height=16) for i in range(20))
    target = Answer(text="x", label="yes", boxes=(Box(image=17, xyxy=(1.0, 1.0, 9.0, 9.0)),))
    base = record("s", "vqa", "yes")
    many = msgspec.structs.replace(base, benchmark="generic", images=images, target=target, strata={})
    data = write_data(tmp_path / "data", [many], benchmark="generic")
    folder = write_run(tmp_path / "run", data, [predict(many, "yes", "plain")], codec="plain")
    runs = load_runs([folder])
    result = evaluate(runs, profiles=["corrected"], resamples=100)
    (card,) = build_gallery(result.systems, runs).cards
    assert len(card.views) == MAX_VIEWS
    assert "image 18" in [view.title for view in card.views]
    assert card.hidden_views == 20 - MAX_VIEWS
    assert card.region == "(none)"
    page = Page(render_report(result, runs))
    assert "14 more images of this record are not shown" in page.text
    assert "What corrected changes" not in page.text
    check_safe(page)


def test_one_profile_alone(runs):
    page = render(runs, profiles=["published"])
    assert "Cases need the corrected profile" in page.text
    check_safe(page)
    page = render(runs, profiles=["corrected"])
    assert "published profile" not in page.text.split("Test cases")[0].split("Systems")[1]
    check_safe(page)


HOSTILE = {
    "text": "</pre><script>alert(1)</script>",
    "label": 'x" onmouseover="alert(1)',
    "id": "<img src=x onerror=alert(1)>",
    "json": '{"a": "</script><!-- \u2028 -->"}',
}


def test_hostile_data_is_text(tmp_path):
    base = record("0", "vqa", "yes", group="<b>group</b>")
    hostile = msgspec.structs.replace(
        base,
        id=HOSTILE["id"],
        benchmark="generic",
        task=HOSTILE["label"],
        question=HOSTILE["text"],
        choices=(HOSTILE["text"], HOSTILE["label"]),
        images=(Image(path='a"><script>x.png', width=8, height=8, view=HOSTILE["label"]),),
        target=Answer(
            text=HOSTILE["json"], label=HOSTILE["label"], boxes=(Box(image=0, xyxy=(1.0, 1.0, 2.0, 2.0), label="<i>"),)
        ),
        strata={"region": HOSTILE["text"], HOSTILE["label"]: HOSTILE["id"]},
    )
    data = write_data(tmp_path / "data <i>", [hostile], benchmark="generic")
    bad = Prediction(id=hostile.id, text=HOSTILE["text"] + HOSTILE["json"], invalid=HOSTILE["text"])
    given_answer = msgspec.structs.replace(hostile.target, text=HOSTILE["text"])
    fine = Prediction(id=hostile.id, text="\n\nx\x00\u202e" + HOSTILE["json"], answer=given_answer)
    failed = Prediction(id=hostile.id, error=HOSTILE["text"])
    extra = {"recipe": {"name": HOSTILE["json"]}, "environment": {"v": HOSTILE["json"]}, "control": HOSTILE["label"]}
    folders = [
        write_run(tmp_path / f"run{i}", data, [made], codec="plain", name=f"{HOSTILE['text']}{i}", **extra)
        for i, made in enumerate((bad, fine, failed))
    ]
    runs = load_runs(folders)
    page = Page(render_report(evaluate(runs, profiles=["corrected"], resamples=100), runs))
    check_safe(page)
    for words in HOSTILE.values():
        assert words in page.text
    assert {attrs["data-task"] for attrs in page.cases()} == {HOSTILE["label"]}
    assert {attrs["data-region"] for attrs in page.cases()} == {HOSTILE["text"]}
    options = [attrs["value"] for tag, attrs in page.tags if tag == "option"]
    assert HOSTILE["label"] in options
    # The parser drops the first newline of <pre>, as a browser does; the text's own stay.
    assert "\n\n\nx\u2400\\u202e" in page.text


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_shown_as_it_is(text):
    from eval.report import _environment

    page = Page(_environment().from_string('<p title="{{ x }}">{{ x }}</p>').render(x=text))
    assert page.tags == [("p", {"title": visible(text)})]
    assert page.text == visible(text)


def test_write_survives_text_without_utf8(tmp_path, runs):
    result = evaluate(runs, resamples=100)
    odd = msgspec.structs.replace(result, notes=["a \udc80 b"])
    write_report(odd, runs, tmp_path / "r.html")
    assert "a \\udc80 b" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.6434, ".643"), (1.0, "1.000"), (0.0, ".000"), (-0.012, "-.012"), (-0.0001, ".000"), (None, "n.d.")],
)
def test_numbers_have_three_decimals(value, written):
    assert number(value) == written


def test_signs_intervals_and_p():
    assert (signed(0.5), signed(-0.5), signed(0.0), signed(None)) == ("+.500", "-.500", ".000", "n.d.")
    assert interval(0.601, 0.685) == "[.601, .685]"
    assert interval(-0.01, 0.02, sign=True) == "[-.010, +.020]"
    assert interval(None, 0.2) == ""
    assert (p_value(0.001), p_value(1.0), p_value(None)) == (".0010", "1.0000", "n.d.")


def test_axis_of_differences_holds_every_bound():
    one = Comparison(
        first="a", second="b", metric="m", task="t", difference=-0.2, low=-0.7, high=0.1, p=0.1,
        n_records=1, n_groups=1, undefined_resamples=0,
    )  # fmt: skip
    assert reach([one]) == 0.7
    assert reach([]) == 0.1


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.booleans())
def test_ticks_are_even_and_hold_the_range(low, span, whole):
    ticks = nice_ticks(low, low + span, whole=whole)
    assert 2 <= len(ticks) <= 7
    slack = (ticks[1] - ticks[0]) * 1e-6
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack
    assert ticks[1] - ticks[0] >= (1 if whole else 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_histogram_bars_are_as_high_as_their_counts(ious):
    chart = iou_histogram(histogram("t", [row(ious=tuple(ious))]))
    assert chart.boxes == len(ious)
    unit = next(bar.height / bar.count for bar in chart.bars if bar.count)
    for bar in chart.bars:
        assert bar.height == pytest.approx(bar.count * unit, abs=0.05)
        assert bar.top >= TOP - 0.01
        assert LEFT <= bar.x < bar.x + bar.width <= WIDTH - RIGHT


def test_histogram_shows_what_invalid_outputs_cost():
    data = IouHistogram(task="t", edges=[i / 20 for i in range(21)], counts=[4] + [0] * 19, invalid=3)
    first = iou_histogram(data).bars[0]
    assert first.invalid_height == pytest.approx(first.height * 0.75)
    assert first.title == "IoU [0.00, 0.05): 4 boxes, 3 of them of invalid outputs"


def write_history(run, lines):
    (run / "model").mkdir(parents=True)
    (run / "history.jsonl").write_text("\n".join(lines) + "\n")


def test_history_is_found_from_run_or_model_folder(tmp_path):
    write_history(tmp_path / "run", ["{}"])
    assert find_history(str(tmp_path / "run")) == tmp_path / "run" / "history.jsonl"
    assert find_history(str(tmp_path / "run" / "model")) == tmp_path / "run" / "history.jsonl"
    (tmp_path / "run" / "checkpoint-5").mkdir()
    assert find_history(str(tmp_path / "run" / "checkpoint-5")) is None
    assert find_history("some/model-on-a-hub") is None
    assert find_history(None) is None


def test_training_curve_leaves_out_what_is_no_number_and_says_so(tmp_path, data, records):
    entries = [{"loss": 2.0, "step": 5}, {"loss": float("nan"), "step": 10}, {"eval_loss": 1.5, "step": 10}]
    entries += [{"loss": 1.0, "step": 20}, {"train_loss": 1.4, "step": 20}]
    write_history(tmp_path / "run", [*map(json.dumps, entries), "not json", "[1]"])
    history = read_history(tmp_path / "run" / "history.jsonl")
    assert history.training == ((5, 2.0), (20, 1.0))
    assert history.validation == ((10, 1.5),)
    assert history.dropped == 3
    curve = training_curve(history)
    training, validation = curve.lines
    assert training.points[0][0] < validation.points[0][0] < training.points[1][0] <= WIDTH - RIGHT
    assert TOP <= training.points[0][1] < validation.points[0][1] < training.points[1][1] < HEIGHT
    rows = [perfect(r) for r in records]
    page = render(load_runs([write_run(tmp_path / "pred", data, rows, weights=str(tmp_path / "run" / "model"))]))
    assert "Training curve from" in page.text
    assert "3 entries are not finite numbers or not readable" in page.text
    check_safe(page)


def test_scores_of_validation_answers_are_a_chart_of_their_own(tmp_path, data, records):
    entries = [
        {"loss": 1.0, "step": 10},
        {"eval_loss": 1.1, "eval_score": 0.2, "eval_vqa/balanced_accuracy": 0.5, "eval_vqa/accuracy": 0.9, "step": 10},
        {"eval_loss": 1.0, "eval_score": 0.4, "eval_grounding/iou_at_0.5": 0.3, "eval_runtime": 3.0, "step": 20},
    ]
    write_history(tmp_path / "run", map(json.dumps, entries))
    history = read_history(tmp_path / "run" / "history.jsonl")
    assert history.scores["score"] == ((10, 0.2), (20, 0.4))
    chart = score_curve(history)
    assert [line.name for line in chart.lines] == ["score", "vqa/balanced_accuracy", "grounding/iou_at_0.5"]
    assert chart.lines[0].points[1][1] < chart.lines[0].points[0][1]  # higher scores are higher up
    rows = [perfect(r) for r in records]
    page = render(load_runs([write_run(tmp_path / "pred", data, rows, weights=str(tmp_path / "run"))]))
    assert "What the answers to validation questions scored" in page.text
    check_safe(page)


def test_history_without_a_loss_is_said(tmp_path, data, records):
    write_history(tmp_path / "run", [json.dumps({"loss": float("inf"), "step": 1})])
    rows = [perfect(r) for r in records]
    page = render(load_runs([write_run(tmp_path / "pred", data, rows, weights=str(tmp_path / "run"))]))
    assert "holds no finite loss" in page.text


def test_import_leaves_torch_out():
    code = "import eval.report, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
