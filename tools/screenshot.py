"""Picture of a report as a browser shows it.

    python tools/screenshot.py REPORT/index.html OUT.png [--width 1280] [--height 2400] [--dark]

Runs a headless Chromium with an empty profile and no network. The page stands in a frame of the exact width, since
Chromium's own window does not get narrower than 500 pixels.
"""

from __future__ import annotations

import argparse
import html
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def find_chromium() -> str | None:
    """Path of a Chromium binary, None when there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def take(page: Path, out: Path, width: int, height: int, dark: bool) -> None:
    """Write a PNG of the top `width` x `height` pixels of `page` to `out`.

    Raises:
        SystemExit: no Chromium, no such page, or no picture came out.
    """
    binary = find_chromium()
    if binary is None:
        raise SystemExit(f"no Chromium found (looked for {', '.join(NAMES)})")
    if not page.is_file():
        raise SystemExit(f"{page}: no such file")
    with tempfile.TemporaryDirectory(prefix="screenshot-") as scratch:
        address = html.escape(page.resolve().as_uri(), quote=True)
        frame = Path(scratch, "frame.html")
        frame.write_text(
            f'<!doctype html><meta name="color-scheme" content="light dark"><body style="margin:0">'
            f'<iframe src="{address}" style="display:block;border:0;width:{width}px;height:{height}px"></iframe>'
        )
        command = [binary, *QUIET, f"--user-data-dir={scratch}/profile", f"--screenshot={out.resolve()}"]
        command += [f"--window-size={width},{height}", "--virtual-time-budget=8000"]
        if dark:
            command.append("--blink-settings=preferredColorScheme=0")
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # its sandbox refuses to run as root
        target = frame.as_uri() if width < 500 else page.resolve().as_uri()
        done = subprocess.run([*command, target], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode or not out.is_file():
        raise SystemExit(f"chromium failed ({done.returncode}): {done.stderr[-2000:]}")


def main() -> None:
    """Parse the command line and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="an index.html")
    parser.add_argument("out", type=Path, help="PNG to write")
    parser.add_argument("--width", type=int, default=1280, help="CSS pixels")
    parser.add_argument("--height", type=int, default=2400, help="CSS pixels")
    parser.add_argument("--dark", action="store_true", help="as a reader who prefers dark pages sees it")
    options = parser.parse_args()
    take(options.page, options.out, options.width, options.height, options.dark)
    print(options.out)


if __name__ == "__main__":
    sys.exit(main())
