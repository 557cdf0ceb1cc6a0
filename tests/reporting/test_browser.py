"""The page in a real browser, from disk: it works, it is quiet, it fits. Skipped where there is no Chromium."""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from distilbench.reporting.board import leaderboard
from distilbench.reporting.choice import ServingBudget, answer, best_under
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.frame import board_columns
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.page import report_from, write_report
from distilbench.reporting.study_file import read_study

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = (1280, 390)
AXE = Path(__file__).parents[2] / "build" / "axe" / "package" / "axe.min.js"
"""axe-core, which `make axe` fetches."""
REPORTS = Path(__file__).parents[2] / "reports"


def first_of(*names):
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    binary, driver = first_of(*BROWSERS), first_of("chromedriver")
    if binary is None or driver is None:
        pytest.skip(f"no headless browser: needs one of {', '.join(BROWSERS)}, and chromedriver, on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    arguments = ["--headless=new", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    arguments += ["--disable-sync", "--no-first-run", f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    for argument in arguments:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver))
    driver.get("about:blank")
    driver.get_log("performance")  # what the browser's own first page asked for
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def records(make_study, make_score):
    return [*make_study(), make_score("lacks a set", 99.0, skip=("STS13",)), make_score("long " + "name" * 40)]


@pytest.fixture(scope="module")
def report(records, tmp_path_factory):
    return write_report(records, tmp_path_factory.mktemp("drawn"), title="Synthetic " + "long" * 30)


@pytest.fixture(scope="module")
def undrawn(report, tmp_path_factory):
    """The report beside an empty Plotly file: its tables need none, and loading the real one takes seconds."""
    folder = shutil.copytree(report.parent, tmp_path_factory.mktemp("undrawn"), dirs_exist_ok=True)
    (folder / "plotly.min.js").write_text("")
    return folder / "index.html"


@pytest.fixture(scope="module")
def lines(records):
    """The lines of the page as Python has them."""
    board = leaderboard(records)
    return encoder_lines(board, answer(board).rows)


@pytest.fixture(params=WIDTHS, ids=[f"{width}px" for width in WIDTHS])
def opened(request, browser, undrawn):
    """The page without its figures."""
    return open_page(browser, undrawn, request.param)


@pytest.fixture(params=WIDTHS, ids=[f"{width}px" for width in WIDTHS])
def drawn(request, browser, report):
    """The page with its figures."""
    opened = open_page(browser, report, request.param)
    wait(lambda: len(opened.find_elements(By.CSS_SELECTOR, ".canvas svg.main-svg")) >= 2)  # one figure
    return opened


def open_page(browser, index, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 640},
    )
    browser.get_log("browser")
    browser.get_log("performance")
    visit(browser, index.as_uri())
    return browser


def visit(browser, address):
    browser.get(address)
    arrived(browser, address)


def arrived(browser, address):
    """Wait for the page with `address` in its own, until its scripts have run: the driver may come back sooner."""
    script = "return document.readyState === 'complete' && location.href"
    wait(lambda: address in (browser.execute_script(script) or ""))


def labels(browser):
    script = (
        "return [...document.querySelectorAll('#board tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].dataset.v)"
    )
    return browser.execute_script(script)


def wait(condition):
    while not condition():  # pytest's timeout ends it
        time.sleep(0.05)


def click(browser, element):
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
    element.click()


def header(browser, title):
    every = "[...document.querySelectorAll('#board th[aria-sort]')]"
    return browser.execute_script(f"return {every}.find(h => h.textContent.trim() === arguments[0])", title)


def fits(browser):
    return browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def violations(browser):
    """What axe finds that is serious, with the first places of each."""
    script = (
        "const done = arguments[0]; axe.run().then(r => done(r.violations),"
        " e => done([{id: String(e), impact: 'critical', nodes: []}]))"
    )
    browser.set_script_timeout(120)  # a busy machine
    browser.execute_script(AXE.read_text())  # by the driver, which the page's own policy does not bind
    found = [v for v in browser.execute_async_script(script) if v["impact"] in ("serious", "critical")]
    return [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found]


def names(lines, *kinds):
    return [line.row.name for line in lines if line.kind in kinds]


def test_a_line_is_an_encoder_in_the_order_of_dev_and_references_stay_on_top(opened, lines):
    pinned, rest = names(lines, "reference"), names(lines, "encoder")
    assert pinned[0] == "synthetic-teacher" and pinned[1].startswith("pca-") and len(pinned) == 2
    assert labels(opened) == pinned + rest and len(rest) == 10
    assert rest[:2] == ["lacks a set", "mcr2-256"]  # by dev: the first has no test average
    click(opened, opened.find_element(By.ID, "every"))
    every = [row.name for line in lines for row in (line.row, *line.codes)]
    assert sorted(labels(opened)) == sorted(every) and "flip=every" in opened.current_url


def test_codes_unfold_below_their_encoder(opened, lines):
    pca = next(line for line in lines if line.row.name.startswith("pca-"))

    def button():
        return opened.find_element(By.CSS_SELECTOR, "#board .codes")

    assert button().get_attribute("aria-expanded") == "false" and button().text.endswith("3 more")
    folded = labels(opened)
    click(opened, button())
    unfolded = [row.name for row in (pca.row, *pca.codes)]
    assert labels(opened) == [folded[0], *unfolded, *folded[2:]]
    assert button().get_attribute("aria-expanded") == "true" and f"codes={pca.row.anchor}" in opened.current_url
    opened.switch_to.active_element.send_keys(Keys.ENTER)  # it keeps the focus
    assert labels(opened) == folded


def test_sort_by_mouse_and_keyboard(opened, lines):
    pinned = names(lines, "reference")
    first = labels(opened)
    average = header(opened, "STS average")
    assert average.get_attribute("aria-sort") == "none"
    button = average.find_element(By.TAG_NAME, "button")
    click(opened, button)
    assert average.get_attribute("aria-sort") == "descending"
    # the references stay on top; the row without an average stays last in both directions
    assert labels(opened)[:2] == pinned and labels(opened)[2] == "mcr2-256" and labels(opened)[-1] == "lacks a set"
    button.send_keys(Keys.ENTER)
    assert average.get_attribute("aria-sort") == "ascending"
    assert labels(opened)[2] == "mcr2-32" and labels(opened)[-1] == "lacks a set"
    header(opened, "Bytes").find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert average.get_attribute("aria-sort") == "none"
    assert header(opened, "Bytes").get_attribute("aria-sort") == "descending"
    for _ in range(2):
        header(opened, "Bytes").find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert header(opened, "Bytes").get_attribute("aria-sort") == "none" and labels(opened) == first


def test_filter(opened):
    before = labels(opened)
    box = opened.find_element(By.ID, "filter")
    box.send_keys("MCR2 64")
    assert labels(opened) == ["synthetic-teacher", "mcr2-64"]
    assert opened.find_element(By.ID, "count").text == "1 of 18 rows"
    box.clear()
    box.send_keys("baseline")
    assert len(labels(opened)) == 9  # folded away or not
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.DELETE)
    assert labels(opened) == before


def columns(browser):
    """Titles of the leaderboard's columns that can be seen."""
    script = (
        "return [...document.querySelectorAll('#board thead tr.titles th')]"
        ".filter(h => getComputedStyle(h).display !== 'none').map(h => h.textContent.trim())"
    )
    return browser.execute_script(script)


def body_cells(browser):
    """How many cells of the first row can be seen."""
    script = (
        "return [...document.querySelector('#board tbody tr').cells]"
        ".filter(c => getComputedStyle(c).display !== 'none').length"
    )
    return browser.execute_script(script)


LEADING = ["Label", "Rank", "STS average", "Kept,\u00a0%", "MRR@10", "ms / 1,000", "Index", "Bytes", "Model"]


def test_groups_unfold(opened):
    folded = columns(opened)
    assert folded == LEADING and body_cells(opened) == len(folded)
    unfold = next(b for b in opened.find_elements(By.CSS_SELECTOR, ".unfold") if b.text.startswith("Test STS"))
    assert unfold.get_attribute("aria-expanded") == "false"
    click(opened, unfold)
    assert unfold.get_attribute("aria-expanded") == "true"
    assert columns(opened) == [*folded, "STS12", "STS13", "STS14", "STSB"]
    assert body_cells(opened) == len(columns(opened)) == len(folded) + 4
    spans = opened.execute_script(
        "return [...document.querySelectorAll('#board thead tr.groups > *')].reduce((n, h) => n + h.colSpan, 0)"
    )
    assert spans == len(columns(opened))
    row = opened.find_element(By.CSS_SELECTOR, "#board tbody tr")
    called = [cell.get_attribute("data-t") for cell in row.find_elements(By.TAG_NAME, "td")]
    assert called == [*folded[1:], *(f"Test STS, {name}" for name in ("STS12", "STS13", "STS14", "STSB"))]
    click(opened, unfold)
    assert columns(opened) == folded


def test_the_table_fits_without_scrolling_sideways_and_a_phone_gets_cards(opened):
    wide = opened.execute_script("const s = document.querySelector('.scroll'); return s.scrollWidth - s.clientWidth")
    assert wide <= 0 and fits(opened)
    phone = opened.execute_script("return innerWidth") < 640
    row, cell = "#board tbody tr", "#board tbody td[data-t='Bytes']"
    shown = opened.execute_script("return getComputedStyle(document.querySelector(arguments[0])).display", row)
    named = opened.execute_script(
        "return getComputedStyle(document.querySelector(arguments[0]), '::before').content", cell
    )
    assert (shown == "grid", "Bytes" in named) == (phone, phone)


def test_the_answer_stands_above_the_fold_and_its_command_can_be_copied(opened):
    need = opened.find_element(By.CSS_SELECTOR, ".answer .need.first")
    assert need.text.startswith("Take ") and "of the teacher's STS average" in need.text
    bottom = opened.execute_script("return arguments[0].getBoundingClientRect().bottom", need)
    assert bottom < 900
    button = need.find_element(By.CSS_SELECTOR, "button.copy")
    click(opened, button)
    wait(lambda: button.text == "Copied")
    assert need.find_element(By.TAG_NAME, "code").text.startswith("distilbench export runs/synthetic --student r-")


def test_a_click_on_a_mark_leads_to_its_row(drawn, lines):
    hidden = next(line for line in lines if line.kind == "other").row
    script = (
        "document.getElementById('plot-quality-bytes').emit('plotly_click', {points: [{customdata: arguments[0]}]});"
        "return document.querySelector('#board tr.found')?.id"
    )
    assert drawn.execute_script(script, hidden.anchor) == hidden.anchor
    assert hidden.name in labels(drawn) and drawn.find_element(By.ID, "every").is_selected()
    code = next(line for line in lines if line.codes).codes[-1]
    assert drawn.execute_script(script, code.anchor) == code.anchor and code.name in labels(drawn)
    seen = "const b = document.querySelector('tr.found').getBoundingClientRect(); return b.top > 0 && b.bottom < innerHeight"
    assert drawn.execute_script(seen)


def test_a_runs_page_begins_with_its_best_student(browser, undrawn):
    [run] = (undrawn.parent / "runs").iterdir()
    opened = open_page(browser, run, 390)
    sentence = opened.find_element(By.CSS_SELECTOR, ".need.first")
    assert sentence.text.startswith("Of this run take") and sentence.rect["y"] + sentence.rect["height"] < 900
    link = sentence.find_element(By.CSS_SELECTOR, "a").get_attribute("href")
    assert Path(link.removeprefix("file://")).is_file() and fits(opened)


def test_every_index_is_listed_when_asked_for(opened, records):
    summary = opened.find_element(By.CSS_SELECTOR, "#every-index summary")
    assert not opened.find_elements(By.CSS_SELECTOR, "#index-table tbody tr")
    click(opened, summary)
    wait(lambda: opened.find_elements(By.CSS_SELECTOR, "#index-table tbody tr"))
    rows = opened.find_elements(By.CSS_SELECTOR, "#index-table tbody tr")
    measured = sum(len(r.indexes) for r in records if r.kind == "score")
    assert len(rows) == measured and summary.text == f"Every index: {measured}" and fits(opened)
    ivf = next(row.text for row in rows if "ivf" in row.text)
    assert "nlist 1,024, nprobe 5" in ivf and "82.0" in ivf


@pytest.mark.skipif(
    not AXE.is_file(), reason="axe-core is not there (`make axe` fetches it): accessibility is not checked"
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(drawn, theme):
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    drawn.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        other = drawn.find_element(By.CSS_SELECTOR, "a.label").get_attribute("href")
        run = drawn.find_element(By.CSS_SELECTOR, "#runs a.label").get_attribute("href")
        for page in (drawn.current_url, other, run):
            visit(drawn, page)
            assert violations(drawn) == [], page
    finally:
        drawn.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_view_is_its_address(opened):
    opened.find_element(By.ID, "filter").send_keys("64")
    fill(opened, "bytes", "256")
    click(opened, next(b for b in opened.find_elements(By.CSS_SELECTOR, ".unfold") if b.text.startswith("Test STS")))
    click(opened, header(opened, "STS12").find_element(By.TAG_NAME, "button"))
    click(opened, header(opened, "STS12").find_element(By.TAG_NAME, "button"))
    before, address = (labels(opened), columns(opened)), opened.current_url
    assert before[0][0] == "synthetic-teacher" and before[0][-1] == "lacks a set"
    opened.get("about:blank")
    visit(opened, address)
    assert (labels(opened), columns(opened)) == before
    assert header(opened, "STS12").get_attribute("aria-sort") == "ascending"
    assert opened.find_element(By.ID, "filter").get_attribute("value") == "64"
    assert field(opened, "bytes").get_attribute("value") == "256"
    assert opened.find_element(By.ID, "count").text == f"{len(before[0]) - 1} of 18 rows"


def field(browser, name):
    return browser.find_element(By.CSS_SELECTOR, f"#case [name={name}]")


def fill(browser, name, text):
    for summary in browser.find_elements(By.CSS_SELECTOR, f"#case details:not([open]):has([name={name}]) summary"):
        click(browser, summary)
    field(browser, name).clear()
    field(browser, name).send_keys(text)
    wait(lambda: not text or f"{name}={text}" in browser.current_url.replace("&", "#").split("#"))


def test_limits_move_answer_table_figure_and_address(drawn, records):
    board = leaderboard(records)
    for size in (128, 300):
        fill(drawn, "bytes", str(size))
        best = best_under(board.rows, ServingBudget(bytes_per_vector=size))
        named = drawn.find_element(By.CSS_SELECTOR, ".answer .need.first")
        kept = best.test.retention
        said = (
            f"{size // 256 * 256 or size} bytes" if kept is None else f"keeps {kept:.1f} % of the teacher's STS average"
        )
        assert named.text.startswith(f"Take {best.name}: {said}")
        assert f"--student {best.anchor} " in named.text and f"bytes={size}" in drawn.current_url
        found = next(column for column in board_columns(board) if column.name == "mrr10").cell(best).retention
        assert kept is None or found is None or f" and {found:.1f} % of its search (MRR@10)" in named.text
        small = {row.name for row in board.rows if row.record.bytes_per_vector <= size}
        assert set(labels(drawn)[1:]) == small, "below the teacher"
        x = "return document.getElementById('plot-quality-bytes').data.filter(t => t.customdata).flatMap(t => t.x)"
        tested = [row for row in board.rows if row.name in small and row.test.value is not None]
        while len(drawn.execute_script(x)) != len(tested):  # pytest's timeout ends it
            time.sleep(0.05)
        assert max(drawn.execute_script(x)) <= size
        assert "are within your limits" in drawn.find_element(By.CSS_SELECTOR, ".answer .absentee").text
    drawn.find_element(By.CSS_SELECTOR, "#case [type=reset]").click()
    wait(lambda: "#" not in drawn.current_url)
    assert drawn.find_element(By.CSS_SELECTOR, ".answer .need.first").text.startswith("Take ")


def test_chosen_sets_give_means_shares_and_ranks_anew(opened, records):
    board = leaderboard(records)
    click(opened, opened.find_element(By.ID, "sets-chosen"))
    for name in ("STS13", "STS14", "STSB"):
        click(opened, opened.find_element(By.CSS_SELECTOR, f"#case [value='sts:{name}']"))
    click(opened, opened.find_element(By.CSS_SELECTOR, "#case [value='mrr10:quora']"))
    teacher, *_ = board.rows
    for row in board.rows:
        shown = opened.execute_script(
            "const row = byAnchor.get(arguments[0]); return [quality(row), places.get(row)]", row.anchor
        )
        value = (row.cells["sts:STS12"].value + row.cells["mrr10:quora"].value) / 2
        whole = (teacher.cells["sts:STS12"].value + teacher.cells["mrr10:quora"].value) / 2
        assert (shown[0]["value"], shown[0]["kept"]) == pytest.approx((value, 100 * value / whole))
        better = [o for o in board.rows if o.cells["sts:STS12"].value > row.cells["sts:STS12"].value + 1e-9]
        assert shown[1]["rank"] == 1 + len(better), "both scores rise alike"
    assert opened.find_element(By.ID, "sets-chosen").text == "2 of 5"
    assert "mean of STS12" in opened.find_element(By.CSS_SELECTOR, ".answer .need.first").text


def test_one_choice_judges_by_the_sets_of_a_task(opened):
    def view():
        ticked = "return [...document.querySelectorAll('[name=set]:checked')].map(({ value }) => value)"
        title = opened.find_element(By.CSS_SELECTOR, "#board th[data-key=test]").text
        return opened.execute_script(ticked), title, opened.find_element(By.CSS_SELECTOR, "figcaption").text

    before = view()
    choice = Select(opened.find_element(By.ID, "judge"))
    assert [option.text for option in choice.options] == ["STS average", "Search (retrieval)"]
    choice.select_by_visible_text("Search (retrieval)")
    sets, title, caption = view()
    assert (sets, title) == (["mrr10:quora"], "Mean of chosen sets")
    assert caption.startswith("The mean of the chosen sets") and "flip=set" in opened.current_url
    choice.select_by_visible_text("STS average")
    assert view() == before and "flip" not in opened.current_url


def test_my_size_gives_index_time_and_money(opened):
    for name, number in (("documents", 2_000_000), ("queries", 10), ("gigabyte", 4), ("core", 30), ("index", 0.3)):
        fill(opened, name, str(number))
    rows = opened.execute_script(
        "return rows.filter(within).map(r => [r.dim, sized(r, 'index_bytes'), searchMs(r), serving(r).money])"
    )
    assert rows and all(dim * 4 * 2_000_000 <= 0.3e9 for dim, *_ in rows), "the index is at most 0.3 GB"
    for dim, size, ms, money in rows:
        assert (size, ms) == pytest.approx((dim * 4 * 2_000_000, dim * 0.9 / 1000 * 100))
        assert money == pytest.approx(size / 1e9 * 4 + 10 * ms / 1000 * 30)
    told = opened.find_element(By.CSS_SELECTOR, ".answer").text
    assert "of index for 2,000,000 documents" in told and "extrapolated" in told and "a month" in told


def test_a_number_may_be_written_as_people_write_it(opened):
    def documents(text):
        return read("documents", text)

    def read(name, text):
        control = field(opened, name)
        control.clear()
        control.send_keys(text)
        number = opened.execute_script("return asked(arguments[0])", name)
        return number, control.get_property("validationMessage") != ""

    click(opened, opened.find_element(By.CSS_SELECTOR, "#case details:has([name=documents]) summary"))
    for text in ("10,000,000", "10M", "10 million", "0.01b"):
        assert documents(text) == (10_000_000, False), text
    assert read("index", "0.5 GB") == (0.5, False) and read("index", "5 MB") == (None, True)
    assert documents("ten") == documents("-1") == documents("10 parsecs") == (None, True)


def test_with_a_number_of_documents_alone_the_first_choice_stays(opened):
    chosen = opened.find_element(By.CSS_SELECTOR, ".need.first strong").text
    fill(opened, "documents", "5000")
    assert "of index for 5,000 documents" in opened.find_element(By.CSS_SELECTOR, ".answer").text
    assert opened.find_element(By.CSS_SELECTOR, ".need.first strong").text == chosen


def page_numbers(browser):
    """By row and column what the page writes, and its marks."""
    script = """
    const text = (row, column) => {
      const { value } = cellOf(row, column);
      return value === undefined || value === "" ? "—" : column.kind === "text" ? value : written[column.written](value);
    };
    const half = (row, column) => {
      const { interval } = cellOf(row, column);
      return interval === undefined ? "" : written[column.written](interval);
    };
    const cells = row => about.columns.map(c => [c.name, text(row, c), half(row, c)]);
    const marks = ({ front, best }) => [Boolean(front), Boolean(best)];
    return rows.map(row => [row.id, cells(row), ...marks(places.get(row))]);"""
    return browser.execute_script(script)


def check_numbers(browser, records, compared=NOT_COMPARED):
    """Every number of every row is the one of the files and the terminal, to the last letter."""
    board = leaderboard(records)
    rows = {row.anchor: row for row in board.rows}
    named = {column.name: column for column in board_columns(board, compared)}
    found = page_numbers(browser)
    assert {anchor for anchor, *_ in found} == rows.keys()
    for anchor, cells, front, best in found:
        row = rows[anchor]
        for name, text, half in cells:
            cell = named[name].cell(row)
            interval = "" if cell.interval is None else named[name].written(cell.interval)
            expected = (named[name].text(row), interval) if name != "standing" else (text, "")
            assert (text, half) == expected, (row.name, name)
        assert (front, best) == (row.pareto, row.best_in_bytes), row.name


def test_every_number_is_that_of_the_files(browser, undrawn, records, make_seeded, tmp_path):
    check_numbers(open_page(browser, undrawn, 1280), records)
    check_numbers(open_page(browser, write_report(make_seeded(), tmp_path, title="Seeds"), 1280), make_seeded())


def test_two_rows_are_compared(opened, records):
    first, second = (row.anchor for row in leaderboard(records).rows[1:3])
    click(opened, opened.find_element(By.ID, "every"))
    for anchor in (first, second):
        click(opened, opened.find_element(By.CSS_SELECTOR, f".compare[value='{anchor}']"))
    text = opened.find_element(By.ID, "compared").text
    gap = "return fixed(quality(byAnchor.get(arguments[1])).value - quality(byAnchor.get(arguments[0])).value)"
    assert opened.execute_script(gap, first, second) in text and "STS12" in text and "Bytes" in text
    assert opened.current_url.count("compare=") == 2


def test_what_a_row_loses_is_one_click_away(browser, records, make_examples, tmp_path):
    hostile = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    board = leaderboard(records)
    second = board.rows[2].anchor
    compared = Comparison(seeds=board.anchors, examples={second: make_examples(hostile)})
    opened = open_page(browser, write_report(records, tmp_path, title="Lost", compared=compared), 1280)
    click(opened, opened.find_element(By.ID, "every"))
    link = opened.find_element(By.CSS_SELECTOR, f"[id='{second}'] a.mark")
    assert link.text == "22 lost, 1 won" and fits(opened)
    click(opened, link)
    arrived(opened, f"encoders/{second}.html#h-lost")
    for details in opened.find_elements(By.TAG_NAME, "details"):
        opened.execute_script("arguments[0].open = true", details)
    assert hostile in opened.find_element(By.TAG_NAME, "main").text
    for width in (390, 1440):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 640}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert fits(opened)
    assert opened.execute_script("return window.pwned === undefined && !document.querySelector('img')")
    assert [e for e in opened.get_log("browser") if e["level"] in ("SEVERE", "WARNING")] == []
    if AXE.is_file():
        assert violations(opened) == []


def test_a_label_leads_to_its_page_and_back(opened):
    link = opened.find_element(By.CSS_SELECTOR, "#board tbody:not(.pinned) a.label")
    name = link.text
    click(opened, link)
    arrived(opened, "/encoders/")
    assert opened.find_element(By.TAG_NAME, "h1").text == name
    assert "SentenceTransformer(" in opened.find_element(By.TAG_NAME, "main").text
    for details in opened.find_elements(By.TAG_NAME, "details"):
        opened.execute_script("arguments[0].open = true", details)
    assert fits(opened)
    click(opened, opened.find_elements(By.CSS_SELECTOR, "nav.bar a")[2])
    arrived(opened, "/runs/")
    for details in opened.find_elements(By.TAG_NAME, "details"):
        opened.execute_script("arguments[0].open = true", details)
    assert fits(opened) and "40 trials" in opened.find_element(By.TAG_NAME, "main").text
    click(opened, opened.find_elements(By.CSS_SELECTOR, "nav.bar a")[0])
    arrived(opened, "/index.html")
    assert [e for e in opened.get_log("browser") if e["level"] in ("SEVERE", "WARNING")] == []


def test_first_column_stays_while_the_table_scrolls_sideways(opened):
    if opened.execute_script("return innerWidth") < 640:
        return  # cards
    for button in opened.find_elements(By.CSS_SELECTOR, ".fold-columns"):
        click(opened, button)
    opened.execute_script("document.querySelector('.scroll').scrollLeft = 0")
    left = "return document.querySelector('#board tbody th').getBoundingClientRect().left"
    before = opened.execute_script(left)
    moved = opened.execute_script(
        "const s = document.querySelector('.scroll'); s.scrollLeft = 120; return s.scrollLeft"
    )
    assert moved > 0
    assert opened.execute_script(left) == pytest.approx(before, abs=1.5)


def test_figures_are_drawn_without_an_error_or_a_request(drawn):
    assert [e for e in drawn.get_log("browser") if e["level"] in ("SEVERE", "WARNING")] == []
    events = [json.loads(entry["message"])["message"] for entry in drawn.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert urls and all(url.startswith(("file:", "data:", "blob:")) for url in urls)


def test_dark_theme_redraws_the_figures(drawn):
    def colour():
        return drawn.execute_script("return getComputedStyle(document.querySelector('.canvas .legendtext')).fill")

    wait(lambda: drawn.find_elements(By.CSS_SELECTOR, ".canvas .legendtext"))
    light = colour()
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    drawn.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        wait(lambda: colour() != light)
    finally:
        drawn.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_hostile_text_runs_nothing(browser, make_score, make_trial, tmp_path):
    hostile = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    records = [
        make_score(hostile, method=hostile, corpus=hostile),
        make_score("t", 80.0, role="teacher"),
        make_trial(0, run=hostile, reason=hostile, params={hostile: hostile}),
    ]
    opened = open_page(browser, write_report(records, tmp_path, title=hostile, notes=[hostile]), 1280)
    wait(lambda: opened.find_elements(By.CSS_SELECTOR, ".canvas svg.main-svg"))
    assert hostile in labels(opened)
    unharmed = "return window.pwned === undefined && document.querySelectorAll('img').length === 0"
    assert opened.execute_script(unharmed)
    for page in (*tmp_path.glob("encoders/*.html"), *tmp_path.glob("runs/*.html")):
        visit(opened, page.as_uri())
        assert opened.execute_script(unharmed)
    assert [e for e in opened.get_log("browser") if e["level"] == "SEVERE"] == []


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    """The report of a committed study, built from its records once."""
    return functools.cache(lambda study: report_from([REPORTS / study], tmp_path_factory.mktemp(study)))


@pytest.mark.slow
@pytest.mark.parametrize("study", ("real-data", "search"))
def test_the_committed_table_is_that_of_its_records(study, rebuilt):
    """Who changes the table builds it again: `distilbench report reports/STUDY --out reports/STUDY`."""
    page = rebuilt(study)
    assert (page.parent / "leaderboard.md").read_text() == (REPORTS / study / "leaderboard.md").read_text()
    assert read_study([page.parent]).records == read_study([REPORTS / study]).records


@pytest.mark.slow
@pytest.mark.parametrize("width", (390, 820, 1280))
def test_the_committed_report_draws_every_figure_without_an_error_or_a_request(browser, rebuilt, width):
    opened = open_page(browser, page := rebuilt("real-data"), width)
    figures = opened.find_elements(By.CSS_SELECTOR, "[data-plot]")
    wait(lambda: all(figure.find_elements(By.CSS_SELECTOR, "svg.main-svg") for figure in figures))
    assert figures and fits(opened) and len(labels(opened)) > 5
    assert not opened.find_elements(By.CSS_SELECTOR, ".absent")
    click(opened, opened.find_element(By.ID, "more"))
    first = labels(opened)
    study = read_study([page.parent])
    if width == 1280:
        check_numbers(opened, study.records, study.report.comparison)
    click(opened, header(opened, "STS average").find_element(By.TAG_NAME, "button"))
    click(opened, header(opened, "STS average").find_element(By.TAG_NAME, "button"))
    assert sorted(labels(opened)) == sorted(first) and labels(opened) != first
    click(opened, opened.find_element(By.CSS_SELECTOR, "#runs a.label"))
    arrived(opened, "/runs/")
    places = opened.find_elements(By.CSS_SELECTOR, "[data-plot]")
    wait(lambda: all(place.find_elements(By.CSS_SELECTOR, "svg.main-svg") for place in places))
    assert places and fits(opened) and not opened.find_elements(By.CSS_SELECTOR, ".absent")
    assert [e for e in opened.get_log("browser") if e["level"] in ("SEVERE", "WARNING")] == []
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert urls and all(url.startswith(("file:", "data:", "blob:")) for url in urls)


def test_paper_has_light_colours_and_no_tools(opened):
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        assert opened.execute_script(style, ".tools", "display") == "none"
        assert opened.execute_script(style, "body", "backgroundColor") == "rgb(255, 255, 255)"
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.slow
def test_of_many_rows_the_first_are_shown_and_a_button_shows_all(browser, make_score, tmp_path):
    records = [make_score(f"s{n}", 50 + n / 10, record_id=f"{n}", trial=n) for n in range(200)]
    opened = open_page(browser, write_report(records, tmp_path, title="Synthetic"), 1280)
    assert labels(opened)[:2] == ["s199", "s198"] and len(labels(opened)) == 50
    assert opened.find_element(By.ID, "count").text == "50 of 200 rows"
    for _ in range(2):
        click(opened, header(opened, "STS average").find_element(By.TAG_NAME, "button"))
    assert labels(opened)[0] == "s0"  # which was not shown before
    box = opened.find_element(By.ID, "filter")
    box.send_keys("s199")
    assert labels(opened) == ["s199"]
    box.clear()
    box.send_keys("s")
    click(opened, opened.find_element(By.ID, "more"))
    assert len(labels(opened)) == 200 and not opened.find_element(By.ID, "more").is_displayed()


def test_the_tables_work_without_plotly(browser, make_study, tmp_path):
    index = write_report(make_study(), tmp_path, title="Synthetic")
    (tmp_path / "plotly.min.js").unlink()
    opened = open_page(browser, index, 1280)
    for _ in range(2):
        click(opened, header(opened, "STS average").find_element(By.TAG_NAME, "button"))
    assert labels(opened)[2] == "mcr2-32"
    assert "plotly.min.js" in opened.find_element(By.CSS_SELECTOR, ".canvas .absent").text
