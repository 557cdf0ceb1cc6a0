"""A command of ours that a test ends the hard way."""

from __future__ import annotations

import subprocess

import psutil


def kill_driver(driver: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait for Ray's processes to notice; its agents, which do no work, take a minute."""
    children = [c for c in psutil.Process(driver.pid).children(recursive=True) if "Agent" not in " ".join(c.cmdline())]
    driver.kill()
    driver.wait()
    psutil.wait_procs(children, timeout=60)
