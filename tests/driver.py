"""A driver of ours that a test ends the hard way."""

from __future__ import annotations

import subprocess

import psutil

from distilbench.cluster.run_copy import RunCopy


def kill_driver(driver: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait for Ray's processes to notice; its agents, which do no work, take a minute."""
    children = [c for c in psutil.Process(driver.pid).children(recursive=True) if "Agent" not in " ".join(c.cmdline())]
    driver.kill()
    driver.wait()
    psutil.wait_procs(children, timeout=60)


def kill_copy(copy: RunCopy) -> None:
    """As SIGKILL does, to a driver's threads in this process: nothing is copied or released any more."""
    copy._over = True
    copy.owner._over.set()
    copy._wake.set()
    for thread in (copy._thread, copy.owner._thread):
        if thread.is_alive():
            thread.join()
