"""Pictures of a running sweep in Ray's dashboard, for clusters/dashboard.md.

    distilbench sweep --method mcr2 --cpus 2 ... &         # prints the dashboard's address
    python tools/dashboard_pictures.py http://127.0.0.1:8265 clusters/images --actor MCR2

Writes actors.png (the trials that run) and jobs.png. Uses headless
Chromium by Selenium (extra: dev), and the token in ~/.ray/auth_token.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from screenshot import find_chromium
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

PATIENCE_S = 240
"""For trials to run: a sweep prepares first."""
COOKIE = "ray-authentication-token"


def open_browser(profile: str, width: int, height: int) -> webdriver.Chrome:
    """A headless Chromium with an empty profile.

    Raises:
        SystemExit: no Chromium, or no chromedriver.
    """
    binary, driver = find_chromium(), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise SystemExit("no Chromium with chromedriver found on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    arguments = ["--headless=new", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}", "--hide-scrollbars"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # its sandbox refuses to run as root
    for argument in (*arguments, f"--window-size={width},{height}"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=Service(driver))


def wait_for(browser: webdriver.Chrome, shown: str) -> None:
    """Wait until the page has this text.

    Raises:
        SystemExit: it does not within `PATIENCE_S`.
    """
    deadline = time.monotonic() + PATIENCE_S
    while shown not in browser.find_element(By.TAG_NAME, "body").text:
        if time.monotonic() > deadline:
            raise SystemExit(f"{browser.current_url}: no '{shown}' there after {PATIENCE_S} s")
        time.sleep(0.5)
    time.sleep(2)  # what is drawn after the text


def take(address: str, out: Path, actor: str, width: int, height: int) -> None:
    """Write the pictures.

    Raises:
        SystemExit: a page did not show what it is to show.
    """
    token = Path.home() / ".ray" / "auth_token"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as profile:
        browser = open_browser(profile, width, height)
        try:
            browser.get(address)
            if token.is_file():
                browser.add_cookie({"name": COOKIE, "value": token.read_text().strip()})
            browser.get(f"{address}/#/actors")
            browser.refresh()
            wait_for(browser, "ALIVE")
            label = browser.find_element(By.XPATH, "//label[normalize-space()='Class']")
            browser.find_element(By.ID, label.get_attribute("for")).send_keys(actor)
            deadline = time.monotonic() + PATIENCE_S
            while not browser.find_elements(By.XPATH, f"//tbody//*[normalize-space(text())='{actor}']"):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{address}: no actor of class {actor} there after {PATIENCE_S} s")
                time.sleep(0.5)
            time.sleep(2)
            browser.save_screenshot(str(out / "actors.png"))
            browser.get(f"{address}/#/jobs")
            wait_for(browser, "RUNNING")
            browser.save_screenshot(str(out / "jobs.png"))
        finally:
            browser.quit()
    print(out / "actors.png", out / "jobs.png")


def main() -> None:
    """Parse the command line and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="of the dashboard, such as http://127.0.0.1:8265")
    parser.add_argument("out", type=Path, help="folder for the PNGs")
    parser.add_argument("--actor", default="MCR2", help="class of the trials' actors: the method's name in tables")
    parser.add_argument("--width", type=int, default=1400, help="CSS pixels")
    parser.add_argument("--height", type=int, default=760, help="CSS pixels")
    options = parser.parse_args()
    take(options.address.rstrip("/"), options.out, options.actor, options.width, options.height)


if __name__ == "__main__":
    sys.exit(main())
