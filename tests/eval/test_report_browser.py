"""The report in a real browser: filters, links to a view, nothing from outside, no script from data."""

import json
import re
import shutil
import subprocess

import PIL.Image
import pytest

from eval.evaluate import evaluate
from eval.report import write_report
from eval.report_gallery import build_gallery
from eval.run import load_runs
from tests.eval.cases import perfect, predict, record, text_for, write_data, write_run
from tests.eval.pages import Page, check_safe

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium found: install the package `chromium`"),
]
PAYLOAD = "</pre></p><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


def browse(folder, url, *options):
    """The page's DOM after its scripts ran."""
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    quiet += [
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command = [BROWSER, *quiet, *options, "--virtual-time-budget=3000", "--dump-dom", url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


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
