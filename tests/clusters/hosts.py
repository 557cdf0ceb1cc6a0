"""Machines in namespaces of this one: each with its own address, processes, home and sshd; only a folder is shared.

    unshare --mount --net --pid --fork --mount-proc python hosts.py ...      # what runs here is the laptop

A host sees the homes of the others as empty folders, so that what a test finds on two of them went over the network.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

LAPTOP = "10.77.0.1"
PROGRAMS = ("unshare", "ip", "sshd", "ssh", "ssh-keygen", "rsync", "git", "make", "mount", "sysctl")

HOST = """
set -e
for _ in $(seq 200); do ip link show eth0 >/dev/null 2>&1 && break; sleep 0.05; done
hostname {name}
ip link set lo up; ip addr add {address}/24 dev eth0; ip link set eth0 up
ip route add default via {laptop}  # Ray asks for the way out to know its address
mount -t tmpfs none /tmp/ray; mount -t tmpfs -o size=4g none /dev/shm
for file in passwd hosts resolv.conf; do mount --bind {folder}/$file /etc/$file; done
for other in {others}; do mount -t tmpfs none $other; done
exec {sshd} -D -e -f {folder}/sshd_config
"""
SSHD = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
Subsystem sftp internal-sftp
"""


def missing() -> str:
    """Why hosts cannot be made here; "" where they can."""
    import shutil

    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs root on Linux, for network namespaces"
    lacking = [name for name in PROGRAMS if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    tried = subprocess.run(
        ["unshare", "-mnpfu", "--mount-proc", "ip", "link", "add", "v", "type", "veth"], capture_output=True
    )
    return "" if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode().strip()}"


@dataclass(frozen=True)
class Host:
    """A machine that is up."""

    name: str
    address: str
    home: Path
    process: subprocess.Popen[bytes]


def start_hosts(scratch: Path, names: list[str], key: Path) -> list[Host]:
    """Machines that the owner of `key` may log in to as root; they end with this process's namespace.

    `key` is in the .ssh of what becomes this machine's home (ssh asks the system for it, not $HOME).

    Raises:
        SystemExit: this is no namespace of its own, but the machine itself, whose network and mounts would be changed.
    """
    if os.getpid() != 1:
        raise SystemExit(
            "hosts.py: expected to be the first process of its own namespaces, by unshare (see its docstring)"
        )
    (scratch / "passwd").write_text(_passwd(key.parent.parent))
    for command in (
        "ip link set lo up",
        "ip link add lan type bridge",
        f"ip addr add {LAPTOP}/24 dev lan",
        "ip link set lan up",
        "sysctl -qw net.ipv4.ip_forward=1",  # so that what is asked of the world outside is refused at once
        "mount --make-rprivate /",
        "mkdir -p /tmp/ray /run/sshd",
        "mount -t tmpfs none /tmp/ray",
        f"mount --bind {scratch}/passwd /etc/passwd",
    ):
        subprocess.run(command.split(), check=True)
    homes = {name: scratch / name / "home" for name in names}
    for home in homes.values():
        home.mkdir(parents=True)
        (home / ".bashrc").write_text("# what every account has\n")
    return [_start(scratch / name, n, name, homes, key) for n, name in enumerate(names)]


def _start(folder: Path, number: int, name: str, homes: dict[str, Path], key: Path) -> Host:
    address = f"10.77.0.{number + 2}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")], check=True)
    (folder / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    (folder / "sshd_config").write_text(SSHD.format(address=address, folder=folder))
    (folder / "passwd").write_text(_passwd(homes[name]))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # refuses at once; another would be waited for
    others = " ".join(str(home) for other, home in homes.items() if other != name)
    sshd = next(p for p in ("/usr/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd") if Path(p).exists())
    script = HOST.format(name=name, address=address, folder=folder, others=others, sshd=sshd, laptop=LAPTOP)
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", script],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
    inside = _wait(lambda: _child(process.pid), "its namespace")
    here = f"veth{number}"
    subprocess.run(
        ["ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", str(inside)], check=True
    )
    subprocess.run(["ip", "link", "set", here, "master", "lan", "up"], check=True)
    _wait(lambda: answers(address, 22), f"{name}'s sshd: {(folder / 'sshd.log').read_text()}")
    return Host(name, address, homes[name], process)


def _passwd(home: Path) -> str:
    lines = Path("/etc/passwd").read_text().splitlines()
    return "\n".join(f"root:x:0:0:root:{home}:/bin/bash" if line.startswith("root:") else line for line in lines) + "\n"


def _child(pid: int) -> int | None:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(text[0]) if text else None


def _wait(condition, what):  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


def answers(address: str, port: int) -> bool:
    """Whether something takes a connection there."""
    try:
        socket.create_connection((address, port), timeout=3).close()
    except OSError:
        return False
    return True


def preinstall(project: Path) -> None:
    """What `make .venv/installed` would make in `project`, with this interpreter's packages; the code is `project`'s."""
    venv = project / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next(venv.glob("lib/python*/site-packages"))
    (packages / "here.pth").write_text(f"{project}\n{sysconfig.get_paths()['purelib']}\n")
    for name, code in {
        "ray": "from ray.scripts.scripts import main; main()",
        "distilbench": "from distilbench.cli import app; app()",
        "pip": "print('nothing is installed in a test')",
    }.items():
        script = venv / "bin" / name
        script.write_text(f"#!{venv}/bin/python\n{code}\n")
        script.chmod(0o755)
    (venv / "installed").touch()
    os.utime(venv / "installed", (4e9, 4e9))  # newer than what it is made of, also after a checkout
