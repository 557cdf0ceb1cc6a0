"""clusters/local.yaml on two hosts, from `ray up` to `ray down`; prints what it saw as one line of JSON.

    unshare --mount --net --pid --fork --mount-proc python ray_up.py SCRATCH [ACT ...]

SCRATCH has shared/data, shared/encoder and shared/space.yaml (make_data, make_encoder), which storage would have. Where it
has a folder `pictures`, it gets those of tools/dashboard_pictures.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from hosts import Host, answers, preinstall, start_hosts

ROOT = Path(__file__).resolve().parents[2]
LISTENING = """
import json, psutil
found = [c for c in psutil.net_connections("tcp") if c.status == "LISTEN"]
named = {(c.laddr.ip, c.laddr.port, " ".join(psutil.Process(c.pid).cmdline())[-200:]) for c in found}
print("LISTENING" + json.dumps(sorted(named)))
"""
NODES = """
import logging, ray
ray.init(address="auto", logging_level=logging.ERROR)
print("ALIVE" + str(sum(node["Alive"] for node in ray.nodes())))
"""
FOR_SSH = "-i ~/ray_bootstrap_key.pem -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


class Laptop:
    """Where the commands are given; a clone of this working tree, without a `.venv`."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.home, self.project = scratch, scratch / "laptop", scratch / "laptop" / "project"
        (self.home / ".ssh").mkdir(parents=True)
        self.key = self.home / ".ssh" / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        self._clone()
        preinstall(self.home / "ray")  # Ray alone is needed here
        self.log = scratch / "log.txt"
        self.environment = {
            "HOME": str(self.home), "PATH": f"{self.home}/ray/.venv/bin:/usr/bin:/bin:/usr/sbin", "RAY_AUTH_MODE": "token",
            "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:8265", "RAY_USAGE_STATS_ENABLED": "0", "TERM": "dumb",
        }  # fmt: skip

    def _clone(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
        )
        files = [f for f in listed.stdout.decode().split("\0") if f and not f.startswith(("reports/", "build/"))]
        self.project.mkdir()
        (self.home / "ray").mkdir()
        subprocess.run(
            ["rsync", "-a", "--files-from=-", f"{ROOT}/", f"{self.project}/"],
            input="\n".join(files).encode(),
            check=True,
        )
        for words in (
            ["init", "-q"],
            ["add", "-A"],
            ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "tested"],
        ):
            subprocess.run(["git", *words], cwd=self.project, check=True)
        subprocess.run(["make", "cluster-bundle"], cwd=self.project, check=True, stdout=subprocess.DEVNULL)

    def run(self, *command: str, seconds: int = 240, fails: bool = False) -> str:
        """What a command printed."""
        began, start = time.monotonic(), self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("a") as log:  # no pipe: ssh's master connection stays, and would hold it open
            print(f"\n$ {' '.join(command)}", file=log, flush=True)
            done = subprocess.run(
                command, cwd=self.project, env=self.environment, timeout=seconds,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            print(f"({done.returncode}, {time.monotonic() - began:.0f} s)", file=log, flush=True)
        told = self.log.read_bytes()[start:].decode(errors="replace")
        assert (done.returncode != 0) == fails, told[-4000:]
        return told

    def configure(self, head: Host, worker: Host, storage: Path) -> str:
        """Path of the cluster file with the words in capitals replaced."""
        text = (self.project / "clusters" / "local.yaml").read_text()
        for word, value in {
            "HEAD_ADDRESS": head.address, "WORKER_ADDRESS": worker.address, "ssh_user: USER": "ssh_user: root",
            "DISTILBENCH_STORAGE=STORAGE": f"DISTILBENCH_STORAGE={storage.as_uri()}",
            "ray start --head": "ray start --head --num-cpus=1", "ray start --address": "ray start --num-cpus=1 --address",
        }.items():  # fmt: skip
            assert text.count(word) == 1, word
            text = text.replace(word, value)
        (self.project / "my.yaml").write_text(text)
        return "my.yaml"


def status_of(address: str, body: bytes | None = None) -> int:
    """Of a request without a token; 0 where nothing answers."""
    try:
        return urllib.request.urlopen(address, body, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


class Scenario:
    """From `ray up` to `ray down`; `found` is what was seen on the way."""

    def __init__(self, scratch: Path) -> None:
        self.found: dict[str, Any] = {"errors": []}
        self.laptop = Laptop(scratch)
        self.head, self.worker = start_hosts(scratch, ["head", "worker"], self.laptop.key)
        for host in (self.head, self.worker):
            (host.home / "distilbench").mkdir()
            preinstall(host.home / "distilbench")
        self.scratch, self.shared = scratch, scratch / "shared"
        self.file = self.laptop.configure(self.head, self.worker, self.shared / "storage")
        self.kept, self.given = self._sweep()

    def _sweep(self) -> tuple[Path, str]:
        """Where results are, and the arguments of a sweep."""
        given = f"--method mcr2 --data {self.shared}/data --teacher {self.shared}/encoder"
        given += f" --space {self.shared}/space.yaml --name r --address auto"
        sources = (self.laptop.project / "distilbench").glob("*.py")
        if any("DISTILBENCH_STORAGE" in source.read_text() for source in sources):
            return self.shared / "storage", given
        places = " ".join(f"--{name} {self.shared}/{name}" for name in ("runs", "reports", "store"))
        return self.shared, f"{given} {places}"

    def play(self, *names: str) -> dict[str, Any]:
        """Every act (or these), also after one that failed: one run tells all that is wrong."""
        for act in (getattr(self, name) for name in names or ("up", "sweep", "job", "ports", "secrets", "down")):
            began = time.monotonic()
            try:
                act()
            except Exception as error:
                self.found["errors"].append(f"{act.__name__}: {type(error).__name__} {str(error)[-1500:]}")
            self.found[f"{act.__name__}_s"] = round(time.monotonic() - began)
        return self.found

    def on_head(self, command: str) -> str:
        return self.laptop.run("ray", "exec", self.file, command)

    def up(self) -> None:
        """Head and worker come."""
        self.laptop.run("ray", "get-auth-token", "--generate")
        (self.laptop.home / ".ray" / "auth_token").chmod(0o600)
        self.laptop.run("ray", "up", "--yes", self.file)
        (self.shared / "nodes.py").write_text(NODES)
        deadline = time.monotonic() + 180
        while (there := self.nodes()) < 2 and time.monotonic() < deadline:
            time.sleep(5)
        self.found["nodes"] = there
        if there < 2:
            self.on_head("tail -n 60 /tmp/ray/session_latest/logs/monitor.*")

    def nodes(self) -> int:
        told = self.on_head(f"python {self.shared}/nodes.py")
        return int(re.findall(r"^ALIVE(\d+)\s*$", told, re.MULTILINE)[0])

    def sweep(self) -> None:
        """By `ray exec`."""
        self.on_head(f"distilbench sweep {self.given} --trials 2")
        self.found["trials"] = len(self.records())

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.kept / "runs" / "r" / "trials.jsonl").open()]

    def job(self) -> None:
        """The sweep goes on as a job, through the tunnel of `ray dashboard`."""
        tunnel = subprocess.Popen(
            ["ray", "dashboard", self.file], cwd=self.laptop.project, env=self.laptop.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while not answers("127.0.0.1", 8265):
                assert time.monotonic() < deadline, "no tunnel"
                time.sleep(0.5)
            page = urllib.request.urlopen("http://127.0.0.1:8265/", timeout=20).read().decode()
            self.found["dashboard"] = "<title>" in page
            self.found["jobs_without_token"] = status_of("http://127.0.0.1:8265/api/jobs/")
            command = f"distilbench sweep {self.given} --trials 3"
            told = self.laptop.run("ray", "job", "submit", "--submission-id", "first", "--", *command.split())
            self.found["job"] = "succeeded" in told
            if (self.scratch / "pictures").is_dir():
                self.pictures()
        finally:
            tunnel.terminate()
            tunnel.wait()
        self.found["trials_after_job"] = len(self.records())
        self.found["report"] = (self.kept / "reports" / "r" / "index.html").is_file()
        self.found["commits"] = sorted({r["provenance"]["commit"] for r in self.records()})
        asked = ["git", "rev-parse", "HEAD"]
        self.found["commit"] = subprocess.check_output(asked, cwd=self.laptop.project, text=True).strip()

    def pictures(self) -> None:
        """Of a longer sweep while it runs."""
        given = self.given.replace("space.yaml", "long.yaml").replace("--name r", "--name long")
        (self.shared / "long.yaml").write_text(
            (self.shared / "space.yaml").read_text().replace("steps: 40", "steps: 4000")
        )
        command = f"distilbench sweep {given} --trials 60"
        self.laptop.run("ray", "job", "submit", "--no-wait", "--submission-id", "long", "--", *command.split())
        tool = ROOT / "tools" / "dashboard_pictures.py"
        self.laptop.run(sys.executable, str(tool), "http://127.0.0.1:8265", str(self.scratch / "pictures"))
        self.laptop.run("ray", "job", "stop", "long")

    def ports(self) -> None:
        """What listens where, and what answers from outside, without the token."""
        (self.shared / "listening.py").write_text(LISTENING)
        for host in (self.head, self.worker):
            command = f"{host.home}/distilbench/.venv/bin/python {self.shared}/listening.py"
            told = self.on_head(command if host is self.head else f"ssh {FOR_SSH} root@{host.address} {command}")
            (line,) = re.findall(r"^LISTENING(\[.*\])\s*$", told, re.MULTILINE)
            self.found[f"{host.name}_listens"] = json.loads(line)
            self.found[f"{host.name}_reached"] = [p for p in (22, 6379, 8265, 10001, 52365) if answers(host.address, p)]
        address = self.head.address
        self.found["agent_without_token"] = status_of(f"http://{address}:52365/api/job_agent/jobs/x/logs")
        ports = [port for _, port, process in self.found["head_listens"] if "RuntimeEnvAgent" in process]
        self.found["runtime_env_without_token"] = [
            status_of(f"http://{address}:{port}/get_runtime_envs_info", b"") for port in ports
        ]
        nobody = {**self.laptop.environment, "RAY_AUTH_MODE": "disabled", "HOME": str(self.scratch)}
        command = ["ray", "status", "--address", f"{address}:6379"]
        done = subprocess.run(command, env=nobody, capture_output=True, text=True, timeout=120)
        self.found["gcs_without_token"] = done.returncode, (done.stdout + done.stderr)[-600:]

    def secrets(self) -> None:
        """The token is readable by its user alone, and in no log, no command line, no file of the cluster."""
        token = (self.laptop.home / ".ray" / "auth_token").read_text().strip()
        files = [host.home / ".ray" / "auth_token" for host in (self.head, self.worker)]
        self.found["token_mode"] = [oct(file.stat().st_mode & 0o777) for file in files]
        self.found["token_there"] = [file.read_text().strip() == token for file in files]
        looked = "/tmp/ray ~/ray_bootstrap_config.yaml ~/distilbench.env /proc/[0-9]*/cmdline"
        told = self.on_head(f"grep -rslF -f ~/.ray/auth_token {looked} || true")  # by file: not in grep's own cmdline
        self.found["token_in"] = [line for line in told.splitlines() if line.startswith(("/tmp", "/proc", "/root"))]
        if token in self.laptop.log.read_text().split("$ ray up")[1]:
            self.found["token_in"].append("what the laptop was told")

    def down(self) -> None:
        """Ray ends on the head."""
        self.laptop.run("ray", "down", "--yes", self.file)
        time.sleep(3)
        self.found["head_after_down"] = [p for p in (6379, 8265) if answers(self.head.address, p)]
        check = f"ssh {FOR_SSH} root@{self.worker.address} pgrep -c raylet"
        check = check.replace("~/ray_bootstrap_key.pem", str(self.laptop.key))
        left = subprocess.run(check.split(), capture_output=True, text=True, env=self.laptop.environment)
        self.found["raylets_on_worker_after_down"] = int(left.stdout.strip() or 0)


if __name__ == "__main__":
    print("FOUND" + json.dumps(Scenario(Path(sys.argv[1])).play(*sys.argv[2:])), flush=True)
