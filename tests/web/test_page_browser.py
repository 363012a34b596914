"""The status page in a real Chromium: it opens, lives, filters, links, and nothing of a run can do anything to it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from grpo_watch.daemon.run_detail import BatchView, ListedGroup
from grpo_watch.demo.replayer import replay_run
from grpo_watch.engine.judgement import EarlySign, Judgement
from grpo_watch.engine.snapshot import RunVerdict
from grpo_watch.report.view import judgement_lines
from grpo_watch.web.access import AccessKeys, OwnToken
from tests.conftest import find_program
from tests.support.browser import PHONE, Visit, chromium, visit
from tests.support.bundles import unpack
from tests.support.process import Process, until, watching
from tests.support.reports import EVIL, a_finding, a_report
from tests.support.servers import free_port
from tests.support.serving import web
from tests.support.watches import Shown, a_hostile_watch, a_picture, a_run_detail, a_thousand_runs

pytestmark = pytest.mark.system("chromium")

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
DUPLICATES = "trl-1.16.0-11-dup-stride3"
CURSORS = "[...document.querySelectorAll('.u-legend tr:first-child .u-value')].map((each) => Number(each.textContent))"
BUDGET = 200_000
"""Bytes that opening a page may transfer."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for the module: its loop must be over before other tests run theirs."""
    program = find_program("chromium")
    assert program is not None
    with chromium(program) as started:
        yield started


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[[Shown], Visit]]:
    """Opens the overview of a daemon that was made by hand; at the end there are no errors and no foreign requests."""
    with ExitStack() as stack:
        visits: list[Visit] = []

        def go(watch: Shown, **options: object) -> Visit:
            place = stack.enter_context(web(watch))
            visits.append(stack.enter_context(visit(browser, f"http://{place}", **options)))
            visits[-1].open()
            return visits[-1]

        yield go
        for each in visits:
            assert each.complaints == []
            assert each.elsewhere() == []


def a_critical_run(**changes: object) -> Shown:
    follows = a_finding("reward-collapse", caused_by="kl-stuck-at-zero", first_step=1, summary="it fell")
    snapshot = a_report(a_finding(hint="try `this`"), follows, **changes).snapshot
    return Shown(a_picture(snapshot), detail=a_run_detail(300))


def read(daemon: Process) -> None:
    """Wait until the daemon has read what is there."""
    until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)


@pytest.mark.slow
def test_a_stranger_finds_what_is_wrong_since_when_why_and_what_to_do(browser: Browser, tmp_path: Path) -> None:
    """The real daemon over the demo's real frozen run: overview, run, runbook, and back."""
    run = tmp_path / "frozen-policy"
    run.mkdir()
    replay_run(run, lambda _: False, 1.0)
    with (
        watching(run, state=tmp_path / "state") as daemon,
        visit(browser, daemon.url, extra_http_headers=daemon.headers) as seen,
    ):
        read(daemon)
        seen.open()
        seen.sees("since step")
        assert "batch std" in seen.page.locator(".spark .what").all_inner_texts()
        seen.page.get_by_role("link", name="frozen-policy").click()
        seen.page.wait_for_url("**/#/run/frozen-policy")
        seen.sees("What is wrong")
        seen.until("document.querySelector('article.finding h3')?.textContent === 'parameters-unchanged'")
        finding = seen.page.locator("article.finding").first
        document = finding.inner_text()
        assert "all 26 tensors of checkpoints 60 and 80 are byte-identical" in document
        assert "first sign: step 2 (kl-stuck-at-zero)" in document
        output = run.resolve() / "output"
        assert f"grpo-watch digest {output}/checkpoint-60 {output}/checkpoint-80" in document
        lanes = seen.page.locator(".tl .when").all_inner_texts()
        assert lanes[0].startswith("warning since step 2, fired at 10 as critical, later explained by parameters-")
        assert {"Likely cause", "What to do", "Evidence"} <= set(finding.locator("dt").all_inner_texts())
        assert "`" not in document
        assert finding.locator("dd code").count() >= 1
        finding.locator("summary", has_text="Runbook").click()
        finding.locator("details details", has_text="What it detects").first.wait_for()
        assert finding.locator(".runbook code").count() > 3
        assert "`" not in finding.locator(".runbook p").first.inner_text()
        seen.until("document.querySelectorAll('.u-over').length >= 5")
        titles = seen.page.locator(".chart h3").all_inner_texts()
        assert {"Reward spread over the whole batch", "Groups without any reward spread (share)", "Loss"} <= set(titles)
        seen.page.get_by_role("link", name="grpo-watch").click()
        seen.page.locator("li.run").wait_for()
        assert (seen.complaints, seen.elsewhere()) == ([], [])


@pytest.mark.slow
def test_it_follows_a_run_that_is_written(browser: Browser, tmp_path: Path) -> None:
    """Rows appear without a reload, first on the overview and then on the run's page, and so does the alert."""
    run = unpack(FROZEN, tmp_path / "runs")
    for console in run.rglob("*.log"):
        console.unlink()
    for old in (*run.rglob("checkpoint-*"), *run.rglob("events.out.*")):
        if old.is_file():
            old.unlink()
    log = next(run.rglob("logging.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)

    def write(first: int, last: int) -> None:
        with log.open("ab") as file:
            file.write(b"".join(lines[first:last]))

    log.write_bytes(b"")
    write(0, 4)
    with (
        watching(run, state=tmp_path / "state") as daemon,
        visit(browser, daemon.url, extra_http_headers=daemon.headers) as seen,
    ):
        read(daemon)
        seen.open()
        seen.sees(re.compile(r"step 4 of 60"))
        seen.page.evaluate("window.same = true")
        write(4, 8)
        seen.sees(re.compile(r"step 8 of 60"))
        seen.page.get_by_role("link", name=FROZEN).click()
        seen.sees("early sign: kl-stuck-at-zero: ")  # its rule waits for ten rows
        write(8, 40)
        seen.sees(re.compile(r"step 40 of 60"))
        seen.sees("What is wrong")
        assert "kl-stuck-at-zero" in seen.page.locator("article.finding").first.inner_text()
        seen.until("document.querySelector('.u-over') !== null")
        assert seen.page.evaluate("window.same") is True
        assert seen.page.locator("#link").inner_text() == "live"
        assert (seen.complaints, seen.elsewhere()) == ([], [])


@pytest.mark.slow
def test_the_seed_pattern_is_seen_at_a_glance(browser: Browser, tmp_path: Path) -> None:
    run = unpack(DUPLICATES, tmp_path / "runs")
    with (
        watching(run, state=tmp_path / "state") as daemon,
        visit(browser, daemon.url, extra_http_headers=daemon.headers) as seen,
    ):
        read(daemon)
        seen.open(f"#/run/{DUPLICATES}")
        seen.page.locator("table.matrix").wait_for()
        rows = seen.page.locator("table.matrix tbody tr")
        patterns = {"".join(rows.nth(at).locator("td").all_inner_texts()) for at in range(rows.count())}
        assert patterns == {"ABCABC"}
        listed = seen.page.locator("table.completions tbody tr")
        assert listed.nth(3).inner_text().split("\t")[1:3] == ["4", "A = 1"]  # the fourth is equal to the first
        assert seen.page.locator("table.completions .text, table.completions .prompt").count() == 0
        seen.sees("Prompts and texts are not kept.")
        assert seen.complaints == []


def test_the_overview_says_what_changed_since_it_was_looked_at(opened: Callable[..., Visit]) -> None:
    """Nothing at the first visit; at the second one the run whose verdict changed, and the one that is new."""
    calm = replace(a_report(verdict="healthy").snapshot, verdict=RunVerdict.HEALTHY)
    watch = Shown(a_picture(calm, "first"))
    seen = opened(watch)
    seen.page.locator("li.run").wait_for()
    assert seen.page.locator(".news").inner_text() == ""
    seen.page.goto("about:blank")  # an open page would see the change, and remember it
    watch.now = replace(watch.now, runs=(a_picture(a_report(a_finding()).snapshot, "first"), a_picture(calm, "second")))
    seen.open()
    seen.sees("2 runs changed since you last looked")
    assert seen.page.locator(".news li").all_inner_texts() == ["my run: healthy → critical", "my run: new, healthy"]
    seen.page.reload()
    seen.sees("No change since you last looked")


def test_an_early_sign_is_shown_as_check_says_it(opened: Callable[..., Visit]) -> None:
    """On the overview and on the run's own page, with why the run is not judged yet."""
    sign = EarlySign("gradient-lost", "the gradient norm is exactly 0 although rewards differ", {"grad_norm": 0.0})
    judgement = Judgement(
        "2 rows are too little to judge a run", early_signs=(sign,), guessed={"kl_div": "kl_reference"}
    )
    report = a_report(verdict="too-short", rows=2, judgement=judgement)
    lines = [f"{label}: {line}" for label, line in judgement_lines(report.snapshot)]
    seen = opened(Shown(a_picture(report.snapshot)))
    seen.sees(lines[0])
    seen.page.locator("a.name").click()
    seen.page.locator("#part-cause p").first.wait_for()
    said = seen.page.locator("#part-cause p").all_inner_texts()
    assert said[1:] == lines
    assert said[0].startswith("Warning: 2 rows are too little to judge a run")


def test_an_address_names_a_step(opened: Callable[..., Visit]) -> None:
    """A click on a chart puts its step into the address; every chart marks it."""
    seen = opened(a_critical_run())
    seen.open("#/run/my-run")
    seen.until("document.querySelectorAll('.u-over').length === 10")
    seen.page.locator(".u-over").first.click()
    seen.page.wait_for_url(re.compile(r"step=\d+"))
    step = int(re.findall(r"step=(\d+)", seen.page.url)[0])
    assert 140 <= step <= 160  # the middle of 300
    assert "smooth" not in seen.page.url
    seen.page.get_by_label("smoothing").select_option("0.9")
    seen.page.wait_for_url(re.compile(rf"step={step}.*smooth=0.9"))
    seen.sees(" · smoothed ")


@pytest.mark.slow
def test_what_is_typed_into_the_search_of_completions_stays(opened: Callable[..., Visit]) -> None:
    """A new batch redraws the part; an empty field shows the batch whose button is pressed."""
    lengths = array("I", (9, 9)).tobytes()
    groups = [ListedGroup(lengths, shown=("2 + 2?", "four", other)) for other in ("six", "five", "five")]
    places = enumerate(groups, start=1)
    batches = tuple(BatchView(10 * place, 1, 2, 0, (bytes([0, 1]),), listed=(group,)) for place, group in places)
    detail = a_run_detail(300)
    watch = Shown(a_picture(a_report(a_finding()).snapshot), detail=replace(detail, batches=batches[:2]))
    seen = opened(watch)
    seen.open("#/run/my-run")
    part = seen.page.locator("#part-copies")
    part.get_by_role("searchbox").fill("four")
    seen.sees("2 completions")
    watch.near = replace(detail, batches=batches)
    watch.now = replace(watch.now, runs=(a_picture(a_report(a_finding()).snapshot),))
    part.get_by_role("button", name="step 30").wait_for()
    assert part.get_by_role("searchbox").input_value() == "four"
    seen.sees("3 completions")
    assert seen.page.evaluate("document.activeElement.dataset.key") == "search-texts"
    part.get_by_role("button", name="step 10").click()
    assert part.get_by_role("searchbox").input_value() == ""
    part.get_by_role("searchbox").fill("four")
    part.get_by_role("searchbox").fill("")
    assert part.locator("[aria-pressed=true]").inner_text() == "step 10"
    assert "six" in part.inner_text()


def test_a_metric_whose_label_holds_a_comma_gets_a_chart(opened: Callable[..., Visit]) -> None:
    """Two of them, which the address names."""
    names = tuple(f"reward_function_mean[{number}, {number}]" for number in range(40))
    seen = opened(Shown(a_picture(a_report(a_finding()).snapshot), detail=a_run_detail(20, names)))
    seen.open("#/run/my-run")
    for name in names[-2:]:
        seen.page.get_by_label("more metrics").select_option(name)
    seen.page.reload()
    for name in names[-2:]:
        seen.page.locator(".chart h3", has_text=name).wait_for()


def test_two_runs_are_compared(opened: Callable[..., Visit]) -> None:
    other = replace(a_report(verdict="healthy", run="other").snapshot, verdict=RunVerdict.HEALTHY)
    seen = opened(Shown(a_picture(a_report(a_finding()).snapshot), a_picture(other, "other"), detail=a_run_detail(300)))
    seen.page.get_by_role("button", name="Compare").first.click()
    seen.page.get_by_role("button", name="Compare with this").click()
    seen.page.wait_for_url("**/#/compare/my-run?with=other")
    seen.sees("They part at step 2 of 300 common steps: kl-stuck-at-zero.")
    seen.until("document.querySelectorAll('.u-over').length === 10")
    seen.page.get_by_label("Run b").select_option("my-run")
    seen.sees("No difference beyond noise in 300 common steps.")


def test_further_runs_are_compared_with_the_first(opened: Callable[..., Visit]) -> None:
    """All are in each chart; a run that is taken out again leaves the others."""
    healthy = replace(a_report(verdict="healthy", run="other").snapshot, verdict=RunVerdict.HEALTHY)
    runs = [a_picture(replace(healthy, run=name), name) for name in ("second", "third")]
    seen = opened(Shown(a_picture(a_report(a_finding()).snapshot), *runs, detail=a_run_detail(300)))
    seen.open("#/compare/my-run?with=second")
    seen.page.get_by_label("Run c").select_option("third")
    seen.page.wait_for_url("**/#/compare/my-run?with=second%2Cthird")
    seen.sees("a and c")
    assert seen.page.get_by_text("They part at step 2 of 300 common steps").count() == 2
    drawn = "[...document.querySelectorAll('.u-legend')].filter((each) => each.textContent.includes('c: ')).length"
    seen.until(f"{drawn} === 10")
    seen.page.get_by_label("Run c").select_option("")
    seen.page.wait_for_url("**/#/compare/my-run?with=second")
    seen.until(f"{drawn} === 0 && document.querySelectorAll('.u-legend').length === 10")


def test_a_thousand_runs_are_searched_filtered_and_paged(opened: Callable[..., Visit]) -> None:
    seen = opened(a_thousand_runs())
    rows = seen.page.locator("li.run")
    seen.sees("1 to 25 of 1000")
    assert rows.count() == 25
    assert rows.first.locator("a.name").inner_text() == "run-0000"
    seen.page.get_by_role("button", name="10 critical").click()
    seen.until("document.querySelectorAll('li.run').length === 10")
    assert "verdict=critical" in seen.page.url
    seen.page.get_by_role("searchbox").fill("run-07 kl-stuck")
    seen.until("document.querySelectorAll('li.run').length === 1")
    assert rows.first.locator("a.name").inner_text() == "run-0700"
    assert seen.page.evaluate("document.activeElement.id") == "search"
    seen.page.reload()
    seen.until("document.querySelectorAll('li.run').length === 1")
    assert seen.page.get_by_role("searchbox").input_value() == "run-07 kl-stuck"
    seen.page.get_by_role("searchbox").fill("no such run")
    seen.sees("No run matches the filter.")
    seen.open("#/?sort=name")
    seen.page.get_by_role("button", name="Next").click()
    seen.sees("26 to 50 of 1000")
    assert rows.first.locator("a.name").inner_text() == "run-0025"
    seen.page.get_by_label("State").select_option("running")
    seen.sees("1 to 25 of 500")


@pytest.mark.parametrize(("width", "most"), [(1280, 32), (390, 56)])
def test_many_runs_take_a_line_each(width: int, most: int, opened: Callable[..., Visit]) -> None:
    """At most 32 pixels, unless the address asks for cards; on a phone two lines, of which the name has one."""
    seen = opened(a_thousand_runs(), viewport={"width": width, "height": 800})
    seen.sees("1 to 25 of 1000")
    heights = "[...document.querySelectorAll('li.run')].map((each) => each.offsetHeight)"
    assert max(seen.page.evaluate(heights)) <= most
    cut = "[...document.querySelectorAll('li.run .name')].some((each) => each.scrollWidth > each.clientWidth)"
    assert not seen.page.evaluate(cut)
    seen.page.get_by_role("button", name="compact").click()
    seen.page.wait_for_url("**view=cards*")
    seen.until(f"Math.min(...{heights}) > {most}")


@pytest.mark.slow
def test_the_keyboard_is_enough(opened: Callable[..., Visit]) -> None:
    seen = opened(a_thousand_runs())
    seen.sees("1 to 25 of 1000")
    keys = seen.page.keyboard
    keys.press("/")
    keys.type("run-0100")
    seen.until("document.querySelectorAll('li.run').length === 1")
    keys.press("Escape")
    keys.press("j")
    assert seen.page.evaluate("document.activeElement.textContent") == "run-0100"
    keys.press("Enter")
    seen.sees("What is wrong")
    seen.until("document.querySelectorAll('.u-over').length > 3")
    keys.press("l")
    seen.page.wait_for_url("**log=1*")
    seen.page.locator(".chart").first.focus()
    keys.press("ArrowRight")
    first = "[...document.querySelectorAll('.u-legend tr:first-child .u-value')]"
    seen.until(f"{first}.every((each) => each.textContent.match(/^\\d+$/))")  # a step, in every chart
    keys.press("?")
    seen.page.get_by_role("dialog").wait_for()
    keys.press("Escape")
    keys.press("t")
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"
    keys.press("u")
    seen.sees("1 to 25 of 1000")
    seen.page.reload()
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_all_charts_share_the_cursor_and_the_zoom(opened: Callable[..., Visit]) -> None:
    seen = opened(a_critical_run())
    seen.open("#/run/my-run")
    seen.until("document.querySelectorAll('.u-over').length === 10")
    seen.page.locator(".chart").first.scroll_into_view_if_needed()
    box = seen.page.locator(".u-over").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    seen.page.mouse.move(box["x"] + box["width"] / 2, middle)
    seen.until(f"{CURSORS}.length === 10 && {CURSORS}.every((at) => at >= 140 && at <= 160 && at === {CURSORS}[0])")
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=5)
    seen.page.mouse.up()
    seen.page.mouse.move(box["x"] + 1, middle)
    seen.until(f"{CURSORS}.every((at) => at >= 140 && at <= 160)")  # the left edge is where the middle was


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_never_scrolls_sideways(opened: Callable[..., Visit], scheme: str) -> None:
    name = "a-very-long-name-of-a-run-" * 6
    seen = opened(a_critical_run(run=name), viewport=PHONE, color_scheme=scheme)
    for place, words in [
        ("#/", "since step"),
        ("#/run/my-run", "What to do"),
        ("#/rule/kl-stuck-at-zero", "What it detects"),
    ]:
        seen.open(place)
        seen.sees(words)
        if "run/" in place:
            seen.until("document.querySelectorAll('.u-over').length === 10")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_hostile_texts_do_nothing(opened: Callable[..., Visit]) -> None:
    """Shown as text, controls as their codes, on every page; no dialog, no element, no request comes of them."""
    seen = opened(a_hostile_watch())
    shown = EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\x00", "\\x00")
    seen.until("(text) => document.querySelector('a.name')?.textContent === text", shown)
    seen.page.locator("a.name").click()
    seen.until("document.querySelectorAll('.u-over').length === 1")
    for fold in seen.page.locator("main details").all():
        fold.evaluate("(each) => { each.open = true; }")
    seen.until("(text) => document.querySelector('.finding h3').textContent.includes(text)", shown)
    assert shown in seen.page.locator("#part-sources").inner_text()
    table = seen.page.locator("table.completions")
    assert (table.locator(".prompt").inner_text(), table.locator(".text").count()) == (f"prompt {shown}", 2)
    assert set(table.locator(".text").all_inner_texts()) == {shown}
    assert shown in table.locator("th").all_inner_texts()
    for place in ("#/run/evil", "#/rules", "#/compare/evil?with=evil"):
        seen.open(place)
        seen.until("document.querySelector('main').textContent.length > 200")
        assert seen.page.locator("img, iframe, main script, main style, main link").count() == 0
        assert not set("\x1b\u202e\x00") & set(seen.page.locator("main").inner_text())
    seen.sees("No difference beyond noise in 20 common steps.")
    assert seen.page.locator("select option", has_text="taken").count() == 3
    assert (
        seen.page.evaluate("[...document.querySelectorAll('*')].some((each) => each.hasAttribute('onerror'))") is False
    )
    seen.open("#/run/evil")
    seen.until("document.title.includes('taken')")  # as text
    assert not set("\x1b\u202e\x00") & set(seen.page.locator("main").inner_text())
    seen.complaints = [line for line in seen.complaints if "404" not in line]  # the runbook of a rule that is not there


def test_the_policy_stops_what_would_be_injected(browser: Browser) -> None:
    """Were a text taken for markup after all: the browser refuses the sink itself."""
    with web(a_critical_run()) as place, visit(browser, f"http://{place}") as seen:
        seen.open()
        seen.sees("since step")
        refused = "() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } }"
        assert seen.page.evaluate(refused) is True


@pytest.mark.slow
@pytest.mark.parametrize("place", ["#/", "#/run/my-run"])
def test_a_long_run_is_a_light_page(browser: Browser, place: str) -> None:
    """A hundred thousand steps of fifteen metrics, everything that opening it transfers; the spike is on the chart."""
    snapshot = a_report(a_finding()).snapshot
    runs = [a_picture(snapshot, "my-run"), *(a_picture(snapshot, f"other-{number}") for number in range(60))]
    watch = Shown(*runs, detail=a_run_detail(100_000, spike=54_321))
    with web(watch) as address, visit(browser, f"http://{address}") as seen:
        seen.open(place)
        if "run/" in place:
            seen.until("document.querySelectorAll('.u-over').length === 10")
            charts = seen.page.evaluate("fetch('api/v1/runs/my-run/charts').then((answer) => answer.json())")
            gradient = next(chart for chart in charts["charts"] if chart["title"] == "Gradient norm")
            assert max(gradient["lines"][0]["y"]) == 77.0
        else:
            seen.until("document.querySelectorAll('.spark svg').length === 25 * 6")
        assert 20_000 < seen.received <= BUDGET


@pytest.mark.slow
def test_a_page_that_nobody_looks_at_asks_nothing(opened: Callable[..., Visit]) -> None:
    """It asks at once when it is looked at again; what has not changed is not sent again."""
    watch = a_critical_run()
    seen = opened(watch)
    seen.sees("since step")
    hidden = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
    turned = "document.dispatchEvent(new Event('visibilitychange'))"
    answers: list[int] = []
    seen.page.on("response", lambda answer: answers.append(answer.status) if "overview" in answer.url else None)
    seen.until("document.getElementById('link').textContent === 'live'")
    seen.page.evaluate(f"{hidden % 'true'}; {turned}")
    assert seen.page.locator("#link").inner_text() == "paused"
    seen.page.wait_for_load_state("networkidle")
    before = len(answers)
    seen.page.evaluate(f"{hidden % 'false'}; {turned}")
    seen.until("document.getElementById('link').textContent === 'live'")
    assert set(answers[before:]) == {304}
    watch.now = replace(watch.now, problems=("a new problem",))
    seen.sees("a new problem")
    assert answers[-1] == 200


@pytest.mark.slow
def test_it_says_that_it_is_cut_off_and_finds_back(browser: Browser) -> None:
    """The daemon goes away and another one comes to the same address: without a reload it shows that one's runs."""
    port = free_port()
    with ExitStack() as stack:
        with web(a_critical_run(), port=port) as place:
            seen = stack.enter_context(visit(browser, f"http://{place}"))
            seen.open()
            seen.until("document.getElementById('link').textContent === 'live'")
        seen.until("document.getElementById('link').textContent.startsWith('disconnected')")
        with web(a_critical_run(run="another run"), port=port):
            seen.sees("another run")
            seen.until("document.getElementById('link').textContent === 'live'")
        assert [line for line in seen.complaints if "ERR_" not in line] == []


def test_the_link_of_the_start_opens_the_page_with_one_click(browser: Browser) -> None:
    """A cookie carries the token from then on; without it the page says where the link is."""
    with web(a_critical_run(), AccessKeys(OwnToken("geheim"))) as place, visit(browser, f"http://{place}") as seen:
        seen.open()
        seen.sees("open the link that grpo-watch printed at its start")
        seen.open("?token=geheim#/run/my-run")
        seen.sees("What is wrong")
        assert seen.page.url == f"http://{place}/#/run/my-run"
        seen.until("document.getElementById('link').textContent === 'live'")
        assert seen.page.evaluate("document.cookie") == ""


def test_a_run_that_is_not_there(opened: Callable[..., Visit]) -> None:
    seen = opened(a_critical_run())
    seen.open("#/run/nope")
    seen.sees("This run is not on the page")
    seen.complaints = [line for line in seen.complaints if "404" not in line]
