"""`python -m platform.sweep` from the repository root, where the folder platform/ hides the standard library's module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from driver import door_environment

ROOT = Path(__file__).parents[1]


def python(*arguments: str, timeout: int = 240) -> subprocess.CompletedProcess[str]:
    """Run Python in the repository root."""
    environment = door_environment(COLUMNS="200", NO_COLOR="1", RAY_BACKEND_LOG_LEVEL="fatal")
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["sweep", "--method", "nope"], "error: --method nope: unknown method; expected one of "),
        (["status", "nowhere"], "error: nowhere: no such folder; expected that of a run, such as runs/NAME"),
    ],
)
def test_bad_input_is_status_2_and_one_line(arguments: list[str], wanted: str) -> None:
    done = python("-m", f"platform.{arguments[0]}", *arguments[1:])
    assert done.returncode == 2
    assert done.stderr.startswith(wanted) and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_the_door_is_there_and_the_standard_library_behind_it() -> None:
    # -c puts the working folder first on the path, as -m does.
    code = """
import platform, sysconfig
print(platform.__spec__.origin)
print(platform.__path__)
print(platform.system(), platform.machine(), platform.python_version(), platform.python_implementation())
import platform as again
assert again is platform
import platform.sweep
assert platform.uname().system == platform.system()
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    origin, path, names = done.stdout.splitlines()
    assert not Path(origin).is_relative_to(ROOT / "platform") and Path(origin).name == "platform.py"
    assert str(ROOT / "platform") in path
    # The same answers as where no folder hides the module.
    plain = subprocess.run(
        [sys.executable, "-P", "-c", "import platform as p; print(p.system(), p.machine(), p.python_version(), "
        "p.python_implementation())"],
        cwd=ROOT, text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert names == plain.stdout.strip()


PLACES = ("driver", "task", "data", "trial")
ON_RAY = """
import os, platform, sys
assert os.path.samefile(platform.__path__[0], "platform"), "the door is not active"
import ray, ray.data
from ray import tune

def told():
    import platform
    return platform.system()

class Actor:
    def __call__(self, batch):
        return {"told": [told()]}

class Trial(tune.Trainable):
    def setup(self, config):
        pass
    def step(self):
        return {"told": told(), "done": True}
    def save_checkpoint(self, folder):
        pass

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
print("driver", told())
print("task", ray.get(ray.remote(told).remote()))
rows = ray.data.from_items([{"a": 1}]).map_batches(Actor, compute=ray.data.ActorPoolStrategy(size=1)).take_all()
print("data", rows[0]["told"])
run_config = tune.RunConfig(
    storage_path=sys.argv[1], verbose=0, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False)
)
print("trial", tune.Tuner(Trial, run_config=run_config).fit()[0].metrics["told"])
"""


@pytest.mark.slow
def test_workers_of_ray_find_the_standard_library_too(tmp_path: Path) -> None:
    done = python("-c", ON_RAY, str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(words for line in done.stdout.splitlines() if len(words := line.split()) == 2)
    system = os.uname().sysname
    assert {place: told.get(place) for place in PLACES} == dict.fromkeys(PLACES, system)
