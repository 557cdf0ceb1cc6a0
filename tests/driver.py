"""What tests start and end: drivers, and `python -m platform...`."""

from __future__ import annotations

import contextlib
import os
import subprocess

import psutil

from distilbench.cluster.run_copy import RunCopy


def kill_driver(driver: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait for Ray's workers to notice; its servers, which do no work and take a minute, are ended."""
    family = psutil.Process(driver.pid).children(recursive=True)
    workers = [child for child in family if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::")]
    driver.kill()
    driver.wait()
    psutil.wait_procs(workers, timeout=60)
    for child in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def kill_copy(copy: RunCopy) -> None:
    """As SIGKILL does, to a driver's threads in this process: nothing is copied or released any more."""
    copy._over = True
    copy.owner._over.set()
    copy._wake.set()
    for thread in (copy._thread, copy.owner._thread):
        if thread.is_alive():
            thread.join()


def door_environment(**more: str) -> dict[str, str]:
    """The environment without what has coverage measure processes that are started.

    It has coverage imported before the working folder is on the path, and with it the standard library's `platform`:
    the folder of that name is not found any more.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS_")} | more
