"""The report in a real browser: filters, links to a view, nothing from outside, no script from data."""

import json
import re

import PIL.Image
import pytest

from eval.evaluate import evaluate
from eval.report import write_report
from eval.report_gallery import build_gallery
from eval.run import load_runs
from tests.eval.browser import BROWSER, browse, new_tab
from tests.eval.cases import (
    answer_on,
    draw_slices,
    opened,
    perfect,
    predict,
    record,
    shade,
    text_for,
    volume,
    write_data,
    write_run,
)
from tests.eval.pages import Page, check_safe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium found: install the package `chromium`"),
]
PAYLOAD = "</pre></p><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


@pytest.fixture
def report(tmp_path):
    """A report of two systems, one of which answers with markup; returns its path and its gallery."""
    records = []
    for i in range(6):
        records.append(record(f"v{i}", "vqa", "yes" if i % 2 else "no"))
        records.append(record(f"l{i}", "grounding", region="pelvis" if i % 2 else "left knee"))
    data = write_data(tmp_path / "data", records)
    for view in ("ANT", "POST"):
        PIL.Image.new("L", (64, 128), 60).save(data / f"{view}.png")
    good = [perfect(r) for r in records]
    good[0] = predict(records[0], PAYLOAD)
    poor = [predict(r, text_for(r, label="no") if r.task == "vqa" else PAYLOAD) for r in records]
    folders = [write_run(tmp_path / "good", data, good), write_run(tmp_path / "poor & 'bad'", data, poor)]
    runs = load_runs(folders)
    result = evaluate(runs, resamples=100)
    write_report(result, runs, tmp_path / "report.html")
    return tmp_path / "report.html", build_gallery(result.systems, runs)


def shown(page):
    return [attrs for attrs in page.cases() if "hidden" not in attrs]


def counter(page):
    return re.search(r"(\d+) shown of (\d+)", page.text).groups()


@pytest.mark.parametrize(
    ("link", "wanted"),
    [
        ("", {"system": "good"}),
        ("#verdict=wrong&system=", {"verdict": "wrong"}),
        ("#task=grounding&system=poor+%26+%27bad%27", {"task": "grounding", "system": "poor & 'bad'"}),
        ("#region=pelvis&verdict=right&task=grounding", {"region": "pelvis", "verdict": "right", "system": "good"}),
        ("#verdict=nonsense", {"system": "good"}),
        ("#faults", {"system": "good"}),
    ],
)
def test_link_sets_the_filters(tmp_path, report, link, wanted):
    path, gallery = report
    page = Page(browse(tmp_path, path.as_uri() + link))
    expected = [
        card
        for card in gallery.cards
        if all(
            {"verdict": card.verdict, "task": card.record.task, "region": card.region, "system": card.system}[k] == v
            for k, v in wanted.items()
        )
    ]
    assert expected
    found = shown(page)
    assert len(found) == len(expected)
    assert all(attrs[f"data-{key}"] == value for attrs in found for key, value in wanted.items())
    assert counter(page) == (str(len(expected)), str(len(gallery.cards)))


def test_choosing_filters_counts_and_resets(tmp_path, report):
    path, _ = report
    steps = """
      const log = [];
      const pick = (key, value) => {
        const select = document.getElementById("filter-" + key);
        select.value = value;
        select.dispatchEvent(new Event("change", {bubbles: true}));
        log.push([location.hash, document.getElementById("shown").textContent, select.selectedOptions[0].textContent]);
      };
      pick("task", "vqa"); pick("verdict", "wrong"); pick("system", "poor & 'bad'"); pick("verdict", "");
      document.querySelector("#filters button").click();
      log.push([location.hash, document.getElementById("shown").textContent, ""]);
      document.title = JSON.stringify(log);
    """
    # The page's policy forbids foreign scripts, so that the driver needs a copy without it.
    text = re.sub(r"<meta http-equiv[^>]*>", "", path.read_text(encoding="utf-8"))
    driven = path.with_name("driven.html")
    driven.write_text(text.replace("</body>", f"<script>{steps}</script></body>"), encoding="utf-8")
    dom = browse(tmp_path, driven.as_uri())
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL).group(1)
    log = json.loads(Page(f"<p>{title}</p>").text)
    assert [entry[:2] for entry in log] == [
        ["#task=vqa", "6 shown of 24"],
        ["#verdict=wrong&task=vqa", "0 shown of 24"],
        ["#verdict=wrong&task=vqa&system=poor+%26+%27bad%27", "3 shown of 24"],
        ["#task=vqa&system=poor+%26+%27bad%27", "6 shown of 24"],
        ["#gallery", "12 shown of 24"],
    ]
    assert [entry[2] for entry in log[:4]] == ["vqa (6)", "wrong (0)", "poor & 'bad' (3)", "every verdict (6)"]


def test_answers_with_markup_stay_text_in_the_browser(tmp_path, report):
    path, _ = report
    page = Page(browse(tmp_path, path.as_uri()))
    check_safe(page)
    assert "taken" not in "".join(page.words[: page.words.index("Comparison")])
    assert PAYLOAD in page.text


def requested(log):
    """Addresses that a page asked for; the browser's own requests have no page as their initiator."""
    found = [event["params"] for event in log["events"] if "url" in event.get("params", {})]
    return {params["url"] for params in found if params.get("initiator", "not an origin") != "not an origin"}


def test_page_fetches_nothing(tmp_path, report):
    path, _ = report
    log = tmp_path / "net.json"
    browse(tmp_path, path.as_uri(), f"--log-net-log={log}")
    assert requested(json.loads(log.read_text())) == set()


def test_a_fetch_would_be_noticed(tmp_path):
    page = tmp_path / "fetching.html"
    page.write_text('<img src="http://127.0.0.1:9/picture.png">')
    log = tmp_path / "net.json"
    browse(tmp_path, page.as_uri(), f"--log-net-log={log}")
    assert requested(json.loads(log.read_text())) == {"http://127.0.0.1:9/picture.png"}


# Target boxes on frames 3 and 4; the first system predicts on 4 and 6, the second not at all.
BOXED = {"target": (3, 4), "predicted": (4, 6)}


@pytest.fixture
def volumes(tmp_path):
    """The address of a report of two volumes with eight frames each, as two systems answered them."""
    records = [volume(name, 8, frames_with_boxes=BOXED["target"]) for name in ("one", "two")]
    data = write_data(tmp_path / "data", records, benchmark="generic")
    draw_slices(data, records)
    good = [answer_on(r, BOXED["predicted"]) for r in records]
    folders = [
        write_run(tmp_path / "good", data, good, codec="plain"),
        write_run(tmp_path / "blind", data, [answer_on(r, ()) for r in records], codec="plain"),
    ]
    runs = load_runs(folders)
    write_report(evaluate(runs, profiles=["corrected"], resamples=100), runs, tmp_path / "report.html")
    return (tmp_path / "report.html").as_uri()


SEEN = """(() => {
  const card = document.querySelectorAll("article")[CARD];
  const figures = [...card.querySelectorAll("figure")].filter((figure) => figure.checkVisibility());
  return {
    figures: figures.length,
    picture: document.querySelector(figures[0].querySelector("use").getAttribute("href")).getAttribute("href"),
    target: figures[0].querySelectorAll(".target").length,
    predicted: figures[0].querySelectorAll(".predicted").length,
    said: card.querySelector("input").getAttribute("aria-valuetext"),
    written: card.querySelector("output").textContent,
    name: card.dataset.system + " " + card.querySelector(".volume").dataset.case,
  };
})()"""


def frame_of(tab, card):
    """The frame that a card shows, after checking that picture, boxes and words all agree."""
    seen = tab.get(SEEN.replace("CARD", str(card)))
    frame = int(seen["said"].split()[1])
    system, record_id = seen["name"].split()
    boxed = BOXED if system == "good" else {**BOXED, "predicted": ()}
    assert seen["figures"] == 1
    assert opened(seen["picture"]).getpixel((0, 0)) == shade(record_id, frame)
    assert (seen["target"], seen["predicted"]) == tuple(int(frame in boxed[kind]) for kind in ("target", "predicted"))
    counts = [f"{seen[kind]} {kind} box{'' if seen[kind] == 1 else 'es'}" for kind in ("target", "predicted")]
    assert seen["said"] == seen["written"] == f"frame {frame} of 8, {counts[0]}, {counts[1]}"
    return frame


def card_of(tab, system, record_id):
    found = "[...document.querySelectorAll('article')].findIndex((card) => "
    return tab.get(f"{found} card.dataset.system === '{system}' && card.querySelector('[data-case={record_id}]'))")


def part(card, selector):
    return f"document.querySelectorAll('article')[{card}].querySelector('{selector}')"


def test_slider_shows_every_frame_with_its_boxes(tmp_path, volumes):
    with new_tab(tmp_path) as tab:
        tab.go(volumes)
        card = card_of(tab, "good", "one")
        assert frame_of(tab, card) == 3
        tab.click(part(card, "input"), across=0.999)
        assert frame_of(tab, card) == 8
        tab.click(part(card, "input"), across=0.001)
        assert frame_of(tab, card) == 1
        tab.press("ArrowLeft")
        found = [frame_of(tab, card)]
        for _ in range(8):
            tab.press("ArrowRight")
            found.append(frame_of(tab, card))
        assert found == [1, 2, 3, 4, 5, 6, 7, 8, 8]
        tab.press("Home")
        assert frame_of(tab, card) == 1


def test_wheel_scrolls_the_page_and_leaves_the_slider(tmp_path, volumes):
    with new_tab(tmp_path) as tab:
        tab.go(volumes)
        card = card_of(tab, "good", "one")
        tab.click(part(card, "input"), across=0.001)
        before = tab.get("scrollY")
        tab.mouse("mouseWheel", part(card, "input"), deltaX=0, deltaY=-200)
        assert tab.get("new Promise((done) => setTimeout(() => done(scrollY), 500))") < before
        assert frame_of(tab, card) == 1


def test_buttons_step_and_jump_to_frames_with_boxes(tmp_path, volumes):
    with new_tab(tmp_path) as tab:
        tab.go(volumes)
        card = card_of(tab, "good", "one")

        def push(way):
            tab.click(part(card, f"[data-go={way}]"))
            return frame_of(tab, card)

        assert [push("box-on") for _ in range(4)] == [4, 6, 3, 4]
        assert [push("box-back") for _ in range(3)] == [3, 6, 4]
        assert [push("on"), push("on"), push("box-back"), push("on"), push("box-on")] == [5, 6, 4, 5, 6]
        assert [push("on"), push("on"), push("on"), push("back")] == [7, 8, 8, 7]
        tab.press("Tab")  # from "previous frame" to the slider
        tab.press("Tab")
        tab.press("Enter")
        assert frame_of(tab, card) == 8


def test_cards_of_a_record_move_together_if_wanted(tmp_path, volumes):
    with new_tab(tmp_path) as tab:
        tab.go(volumes + "#system=")
        good, blind, other = card_of(tab, "good", "one"), card_of(tab, "blind", "one"), card_of(tab, "good", "two")
        tab.click(part(good, "[data-go=back]"))
        assert [frame_of(tab, card) for card in (good, blind, other)] == [2, 2, 3]
        tab.click("document.getElementById('move-together')")
        tab.click(part(blind, "[data-go=box-on]"))
        tab.click(part(blind, "[data-go=box-on]"))
        assert [frame_of(tab, card) for card in (good, blind, other)] == [2, 4, 3]


def test_filters_leave_the_frame(tmp_path, volumes):
    with new_tab(tmp_path) as tab:
        tab.go(volumes)
        card = card_of(tab, "good", "one")
        tab.click(part(card, "[data-go=on]"))
        tab.get("location.hash = '#system=blind'")
        assert tab.get(f"new Promise((d) => setTimeout(() => d(document.querySelectorAll('article')[{card}].hidden)))")
        assert frame_of(tab, card_of(tab, "blind", "one")) == 4
        tab.get("location.hash = '#system=good'")
        assert tab.get("new Promise((d) => setTimeout(() => d(document.getElementById('shown').value)))") == (
            "2 shown of 4"
        )
        assert frame_of(tab, card) == 4


VISIBLE = """[...document.querySelectorAll("article")].map((card) => [
  card.dataset.system, [...card.querySelectorAll("figure")].filter((f) => f.checkVisibility()).map((f) => f.dataset.place),
  [...card.querySelectorAll(".frames")].filter((f) => f.checkVisibility()).length])"""


def test_without_script_and_on_paper_all_frames_with_boxes_are_there(tmp_path, volumes):
    everything = [["blind", ["2", "3"], 0]] * 2 + [["good", ["2", "3", "5"], 0]] * 2
    with new_tab(tmp_path) as tab:
        tab.call("Emulation.setScriptExecutionDisabled", value=True)
        tab.go(volumes)
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
        assert sorted(tab.get(VISIBLE)) == everything
        tab.go(volumes + "?again#system=")
        tab.click(part(0, "[data-go=on]"))
        assert sorted(tab.get(VISIBLE)) != everything
        tab.call("Emulation.setEmulatedMedia", media="print")
        assert sorted(tab.get(VISIBLE)) == everything
