"""The files of `ray up`, as Ray's own validation and the shell read them. What needs an account is in clusters/README.md."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from files import CLOUDS, HOOK, KUBERAY, ROOT, UP, environment, read

from distilbench.cluster.nodes import Node, parse_growth

TEXTS = sorted({*UP, *KUBERAY, "clusters/slurm.sh", "clusters/install.sh", "clusters/Dockerfile", "clusters/README.md"})
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)


@pytest.mark.parametrize("name", UP)
def test_ray_takes_it(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(read(name))
    validate_config(config)
    broken = {**config, "idle_timeout": 5}  # a key that Ray does not know: it would be refused
    with pytest.raises(Exception, match="idle_timeout"):
        validate_config(broken)


@pytest.mark.parametrize("name", UP)
def test_nodes_go_when_idle(name: str) -> None:
    config = read(name)
    assert 0 < config["idle_timeout_minutes"] <= 10
    assert config["max_workers"] >= 1
    if name in CLOUDS:
        assert config["provider"]["cache_stopped_nodes"] is False


@pytest.mark.parametrize("name", CLOUDS)
def test_a_cloud_has_a_head_and_spot_workers_with_and_without_gpus(name: str) -> None:
    config = read(name)
    types = config["available_node_types"]
    assert config["head_node_type"] == "head" and set(types) == {"head", "cpu", "gpu"}
    spot = re.compile(r"spot|preemptible", re.IGNORECASE)
    assert not spot.search(yaml.safe_dump(types["head"]["node_config"]))
    for kind in ("cpu", "gpu"):
        assert spot.search(yaml.safe_dump(types[kind]["node_config"]))
        assert types[kind]["min_workers"] == 0 < types[kind]["max_workers"] <= config["max_workers"]
        assert types[kind]["resources"]["CPU"] >= 4
    assert types["gpu"]["resources"]["GPU"] == 1 and "GPU" not in types["cpu"]["resources"]
    assert sum(types[kind]["max_workers"] for kind in ("cpu", "gpu")) == config["max_workers"]
    grown = [
        Node(kind["resources"]["CPU"], kind["resources"].get("GPU", 0))
        for kind in types.values()
        for _ in range(kind["max_workers"])
    ]
    assert parse_growth(environment(config)["DISTILBENCH_GROW_TO"]) == tuple(grown)


@pytest.mark.parametrize("name", UP)
def test_only_ssh_leads_in(name: str) -> None:
    config = read(name)
    (head,) = (c for c in config["head_start_ray_commands"] if "ray start" in c)
    (worker,) = (c for c in config["worker_start_ray_commands"] if "ray start" in c)
    assert " --dashboard-host=127.0.0.1" in head and " --port=6379" in head
    assert "dashboard" not in worker and "client-server" not in head
    known = environment(config)
    assert known["RAY_AUTH_MODE"] == "token" and known["RAY_START_HOOK"] == HOOK
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert ("RAY_enable_autoscaler_v2=0" in head) == (name == "clusters/local.yaml")
    assert "security_group" not in config["provider"]  # Ray's own: ssh from outside, everything among the nodes


@pytest.mark.parametrize("name", UP)
def test_nodes_install_the_commit_and_know_where_things_are_kept(name: str) -> None:
    config = read(name)
    assert config["file_mounts"]["~/distilbench.bundle"] == "build/distilbench.bundle"
    assert (ROOT / config["file_mounts"]["~/install-distilbench.sh"]).is_file()
    assert config["setup_commands"][-1] == "bash ~/install-distilbench.sh"
    known = environment(config)
    assert known["DISTILBENCH_STORAGE"]


@pytest.mark.parametrize("name", TEXTS)
def test_no_secret_is_in_it(name: str) -> None:
    text = (ROOT / name).read_text()
    for secret in (
        r"\bAKIA[0-9A-Z]{12,}", r"aws_secret_access_key\s*[=:]\s*\S", r"BEGIN [A-Z ]*PRIVATE KEY", r"://[^/\s:@]+:[^/\s@]+@",
        r"(?i)\bpassword\s*[:=]\s*(?!/dev/stdin)[^\s}]", r"RAY_AUTH_TOKEN\s*[:=]\s*(?!.\$\()\S", r"\b\d{12}\b", r"sig=",
    ):  # fmt: skip
        assert not re.search(secret, text), secret


def test_the_pinned_ray_is_the_one_that_checks_them() -> None:
    assert PINNED["ray"] == metadata.version("ray")
    assert f"rayproject/ray:{PINNED['ray']}-py311-${{DEVICE}}" in (ROOT / "clusters" / "Dockerfile").read_text()
    assert f"torch=={PINNED['torch']}" in (ROOT / "clusters" / "Dockerfile").read_text()


def test_without_its_client_server_ray_is_started_as_it_was() -> None:
    from ray._common.utils import load_class
    from ray._private.parameter import RayParams

    head, worker = RayParams(ray_client_server_port=10001), RayParams(ray_client_server_port=10001)
    load_class(HOOK)(head, True)
    load_class(HOOK)(worker, False)
    assert (head.ray_client_server_port, worker.ray_client_server_port) == (None, 10001)
    head.ray_client_server_port = 10001
    assert vars(head).keys() == vars(worker).keys()


@pytest.mark.parametrize("name", ["clusters/install.sh", "clusters/slurm.sh"])
def test_bash_can_read_it(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A node's home folder with a bundle of a tiny project, where `make` only says what it was given."""
    project = tmp_path / "project"
    (project / ".venv" / "bin").mkdir(parents=True)
    python = project / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$@" >> ~/python.log\n')
    python.chmod(0o755)
    (project / "Makefile").write_text(
        '.venv/installed: source\n\techo "$(PYTHON) $(TORCH_INDEX)" >> ~/make.log\n\ttouch $@\n'
    )
    (project / "source").write_text("1")
    git(project, "init", "-q")
    commit(project, "one")
    home = tmp_path / "home"
    home.mkdir()
    bundle(project, home)
    return home


def git(project: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e")
    return subprocess.run(
        ["git", "-C", project, *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(project: Path, message: str) -> None:
    git(project, "add", "-Af")
    git(project, "commit", "-qm", message)


def bundle(project: Path, home: Path) -> None:
    git(project, "bundle", "create", str(home / "distilbench.bundle"), "HEAD")


def install(home: Path) -> None:
    folders = [home / "bin", Path("/usr/bin"), Path("/bin"), Path(sys.executable).resolve().parent]
    done = subprocess.run(
        ["bash", str(ROOT / "clusters" / "install.sh")], env={"HOME": str(home), "PATH": ":".join(map(str, folders))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_node_installs_a_commit_once_and_the_next_one_over_it(home: Path) -> None:
    project = home.parent / "project"
    install(home)
    assert git(home / "distilbench", "rev-parse", "HEAD") == git(project, "rev-parse", "HEAD")
    (line,) = (home / "make.log").read_text().splitlines()
    assert "python3.11" in line and line.endswith("whl/cpu")
    install(home)
    assert len((home / "make.log").read_text().splitlines()) == 1  # nothing has changed: nothing is installed again
    (project / "source").write_text("2")
    commit(project, "two")
    bundle(project, home)
    (home / "distilbench" / "source").write_text("changed on the node")
    install(home)
    assert (home / "distilbench" / "source").read_text() == "2"
    assert len((home / "make.log").read_text().splitlines()) == 2
    (home / "distilbench.env").write_text("export DISTILBENCH_STORAGE=file:///d\n")
    told = subprocess.run(
        ["bash", "-c", 'source ~/.bashrc && echo "$DISTILBENCH_STORAGE $PATH"'],
        env={"HOME": str(home), "PATH": "/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == f"file:///d {home}/distilbench/.venv/bin:/bin"
    assert (home / ".bashrc").read_text().count("distilbench.env") == 2  # the one line


def test_a_node_with_a_gpu_takes_no_other_build_of_pytorch(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "bin" / "nvidia-smi").symlink_to("/bin/true")
    install(home)
    (line,) = (home / "make.log").read_text().splitlines()
    assert "python3.11" in line and "whl/cpu" not in line


def test_the_environment_that_a_node_is_told(tmp_path: Path) -> None:
    for name in UP:
        config: dict[str, Any] = read(name)
        subprocess.run(["bash", "-ec", config["setup_commands"][0]], env={"HOME": str(tmp_path)}, check=True)
        told = subprocess.run(
            ["bash", "-ec", ". ~/distilbench.env; env"],
            env={"HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        for key, value in environment(config).items():
            assert f"{key}={value}" in told.stdout.splitlines()


def test_every_file_is_in_the_readme() -> None:
    text = (ROOT / "clusters" / "README.md").read_text()
    for path in (ROOT / "clusters").iterdir():
        if path.is_file() and path.name != "README.md":
            assert f"]({path.name})" in text, path.name
    assert all(Path(name).name in text for name in UP)


def test_what_the_nodes_install_is_made_by_make() -> None:
    said = subprocess.run(["make", "-n", "cluster-bundle"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "build/distilbench.bundle HEAD" in said
