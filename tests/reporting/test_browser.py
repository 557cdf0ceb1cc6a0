"""The page in a real browser, from disk: it works, it is quiet, it fits. Skipped where there is no Chromium."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest

from distilbench.reporting.page import write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = (1280, 390)


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
    yield driver
    driver.quit()


@pytest.fixture
def report(make_study, make_score, tmp_path):
    records = [*make_study(), make_score("lacks a set", 99.0, skip=("STS13",)), make_score("long " + "name" * 40)]
    return write_report(records, tmp_path, title="Synthetic " + "long" * 30)


@pytest.fixture(params=WIDTHS, ids=[f"{width}px" for width in WIDTHS])
def opened(request, browser, report):
    """The page beside an empty Plotly file: its tables need none, and loading the real one takes seconds."""
    (report.parent / "plotly.min.js").write_text("")
    return open_page(browser, report, request.param)


@pytest.fixture(params=WIDTHS, ids=[f"{width}px" for width in WIDTHS])
def drawn(request, browser, report):
    """The page with its figures."""
    opened = open_page(browser, report, request.param)
    wait(lambda: len(opened.find_elements(By.CSS_SELECTOR, ".canvas svg.main-svg")) >= 6)
    return opened


def open_page(browser, index, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 640},
    )
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(index.as_uri())
    return browser


def labels(browser):
    script = (
        "return [...document.querySelectorAll('#board tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].dataset.v)"
    )
    return browser.execute_script(script)


def wait(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the page did not get there in time"
        time.sleep(0.05)


def click(browser, element):
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
    element.click()


def header(browser, title):
    every = "[...document.querySelectorAll('#board th[aria-sort]')]"
    return browser.execute_script(f"return {every}.find(h => h.textContent.trim() === arguments[0])", title)


def fits(browser):
    return browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_sort_by_mouse_and_keyboard(opened):
    assert labels(opened)[:2] == ["synthetic-teacher", "mcr2-256"]
    average = header(opened, "Average")
    assert average.get_attribute("aria-sort") == "descending"
    button = average.find_element(By.TAG_NAME, "button")
    click(opened, button)
    assert average.get_attribute("aria-sort") == "ascending"
    # the teacher stays on top; the row without an average stays last in both directions
    assert labels(opened)[:2] == ["synthetic-teacher", "random-projection-32"] and labels(opened)[-1] == "lacks a set"
    button.send_keys(Keys.ENTER)
    assert labels(opened)[1] == "mcr2-256" and labels(opened)[-1] == "lacks a set"
    header(opened, "Bytes").find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert average.get_attribute("aria-sort") == "none"
    assert header(opened, "Bytes").get_attribute("aria-sort") == "descending"


def test_filter(opened):
    box = opened.find_element(By.ID, "filter")
    box.send_keys("MCR2 64")
    assert labels(opened) == ["synthetic-teacher", "mcr2-64"]
    assert opened.find_element(By.ID, "count").text == "1 of 18 rows"
    box.clear()
    box.send_keys("baseline")
    assert len(labels(opened)) == 9
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.DELETE)
    assert len(labels(opened)) == 19


def test_variant_toggle_changes_the_shown_value(opened):
    def shown():
        return opened.execute_script(
            "return [...document.querySelectorAll('#board .pinned td.average .n')]"
            ".filter(n => n.offsetParent).map(n => n.textContent)"
        )

    assert shown() == ["79.50"]
    click(opened, opened.find_element(By.CSS_SELECTOR, "input[value=wmean]"))
    assert shown() == ["80.62"] or shown() == ["80.63"]


def test_a_label_opens_its_record(opened):
    link = opened.find_elements(By.CSS_SELECTOR, "#board a.label")[1]
    target = link.get_attribute("href").split("#")[1]
    click(opened, link)
    wait(lambda: opened.find_element(By.ID, target).is_displayed())
    assert "SentenceTransformer(" in opened.find_element(By.ID, target).text
    assert fits(opened)


def test_everything_open_still_fits_the_width(drawn):
    assert fits(drawn)
    for details in drawn.find_elements(By.TAG_NAME, "details"):
        drawn.execute_script("arguments[0].open = true", details)
    assert fits(drawn)


def test_first_column_stays_while_the_table_scrolls_sideways(opened):
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


@pytest.mark.parametrize("width", WIDTHS)
def test_seeds_and_quantisations(browser, make_seeded, tmp_path, width):
    opened = open_page(browser, write_report(make_seeded(), tmp_path, title="Synthetic"), width)
    wait(lambda: opened.find_elements(By.CSS_SELECTOR, "#plot-bytes path.yerror"))
    # one bar per dimension and quantisation of the students; teacher and PCA have none to see
    lengths = opened.execute_script(
        "return [...document.querySelectorAll('#plot-bytes path.yerror')].map(p => p.getBBox().height > 1)"
    )
    assert lengths.count(True) == 6
    box = opened.find_element(By.ID, "filter")
    box.send_keys("int8")
    assert labels(opened) == ["teacher d=384", "MCR2-128-int8", "MCR2-32-int8"]
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.DELETE)
    header(opened, "Bytes").find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    rows = opened.find_elements(By.CSS_SELECTOR, "#board tbody:not(.pinned) tr")
    sizes = [int(row.find_elements(By.TAG_NAME, "td")[2].get_attribute("data-v")) for row in rows]
    assert sizes == [512, 512, 128, 128, 128, 32, 16, 4]
    for details in opened.find_elements(By.TAG_NAME, "details"):
        opened.execute_script("arguments[0].open = true", details)
    assert fits(opened)
    assert [e for e in opened.get_log("browser") if e["level"] in ("SEVERE", "WARNING")] == []


def test_hostile_text_runs_nothing(browser, make_score, make_trial, tmp_path):
    hostile = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    records = [
        make_score(hostile, method=hostile, corpus=hostile),
        make_score("t", 80.0, role="teacher"),
        make_trial(0, run=hostile, reason=hostile, params={hostile: hostile}),
    ]
    opened = open_page(browser, write_report(records, tmp_path, title=hostile, notes=[hostile]), 1280)
    wait(lambda: opened.find_elements(By.CSS_SELECTOR, ".canvas svg.main-svg"))
    assert opened.execute_script("return window.pwned === undefined && document.querySelectorAll('img').length === 0")
    assert hostile in labels(opened)


def test_the_tables_work_without_plotly(browser, make_study, tmp_path):
    index = write_report(make_study(), tmp_path, title="Synthetic")
    (tmp_path / "plotly.min.js").unlink()
    opened = open_page(browser, index, 1280)
    click(opened, header(opened, "Average").find_element(By.TAG_NAME, "button"))
    assert labels(opened)[1] == "random-projection-32"
    assert "plotly.min.js" in opened.find_element(By.CSS_SELECTOR, ".canvas .absent").text
