"""clusters/slurm.sh with stand-ins for SLURM's commands and Ray's."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from files import HOOK, ROOT

SCRIPT = ROOT / "clusters" / "slurm.sh"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What a job was submitted from, and a home. `srun` runs its command once; the others say what they are given."""
    bin_ = tmp_path / "project" / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (tmp_path / "home").mkdir()
    script(bin_ / "ray", """
        if [ "$1" = get-auth-token ]; then mkdir -p ~/.ray; echo secret > ~/.ray/auth_token; exit; fi
        echo "ray $*"; echo "$RAY_AUTH_MODE $RAY_START_HOOK $RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT"
        while [ "$1" != -- ]; do shift; done; shift; "$@"
    """)  # fmt: skip
    script(bin_ / "distilbench", 'for a in "$@"; do echo "argument $a"; done; exit ${FAILS:-0}')
    slurm = tmp_path / "slurm"
    slurm.mkdir()
    script(
        slurm / "srun", 'echo "srun $SLURM_JOB_NUM_NODES"; while [ "${1#--}" != "$1" ]; do echo "$1"; shift; done; "$@"'
    )
    script(slurm / "scontrol", 'echo "$*" >> ~/scontrol.log; printf "localhost\\nnode2\\n"')
    return tmp_path / "project"


def script(path: Path, text: str) -> None:
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


def run(project: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "HOME": str(project.parent / "home"), "PATH": f"{project.parent / 'slurm'}:/usr/bin:/bin",
        "SLURM_SUBMIT_DIR": str(project), "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_ID": "1234567", "SLURM_CPUS_ON_NODE": "8", **more,
    }  # fmt: skip
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], env=environment, cwd="/", capture_output=True, text=True, check=False
    )


def test_ray_on_every_node_and_the_command_on_the_first(project: Path) -> None:
    done = run(project, "sweep", "--method", "mcr2", "--name", "two words")
    assert done.returncode == 0, done.stderr
    assert (project.parent / "home" / "scontrol.log").read_text() == "show hostnames node[1-2]\n"
    assert "srun 2" in done.stdout
    address = "127.0.0.1:24567"
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("ray symmetric-run"))
    assert line.startswith(
        f"ray symmetric-run --address {address} --min-nodes 2 --num-cpus 8 --dashboard-host 127.0.0.1 -- "
    )
    assert f"token {HOOK} 600" in done.stdout
    given = [line.removeprefix("argument ") for line in done.stdout.splitlines() if line.startswith("argument ")]
    assert given == ["sweep", "--method", "mcr2", "--name", "two words", "--address", address]
    token = project.parent / "home" / ".ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600 and "secret" not in done.stdout + done.stderr
    token.write_text("mine")
    run(project, "sweep")
    assert token.read_text() == "mine"


def test_a_command_that_fails_fails_the_job(project: Path) -> None:
    assert run(project, "sweep", FAILS="2").returncode == 2


@pytest.mark.parametrize(
    ("missing", "said"), [("ray", "no .venv/bin/ray in "), ("command", "expected a command of distilbench")]
)
def test_what_is_missing_is_said(project: Path, missing: str, said: str) -> None:
    if missing == "ray":
        shutil.rmtree(project / ".venv")
    done = run(project, *([] if missing == "command" else ["sweep"]))
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_ray_knows_its_options() -> None:
    from ray.scripts.scripts import start
    from ray.scripts.symmetric_run import symmetric_run

    line = next(line for line in SCRIPT.read_text().splitlines() if "symmetric-run" in line)
    options = {o for p in (*start.params, *symmetric_run.params) for o in p.opts}
    words = (
        SCRIPT.read_text()[SCRIPT.read_text().index(line) :]
        .split(" -- ")[0]
        .replace("\\\n", " ")
        .split("symmetric-run")[1]
    )
    used = {word for word in words.split() if word.startswith("--")}
    assert used == {"--address", "--min-nodes", "--num-cpus", "--dashboard-host"} <= options
    assert os.access(SCRIPT, os.X_OK)
