"""`ray up clusters/local.yaml` for real, on two hosts with sshd in namespaces of this machine, from up to down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hosts import missing, start_hosts
from samples import make_data, make_encoder

ROOT = Path(__file__).resolve().parents[2]
WHY = missing() if os.environ.get("DISTILBENCH_SLOW") else "takes minutes: set DISTILBENCH_SLOW=1"
real = [pytest.mark.skipif(bool(WHY), reason=WHY), pytest.mark.timeout(900)]
SPACE = """
method: mcr2
budget: {trials: 2, steps: 40, rungs: 2, eta: 2, confirm: {seeds: 1}}
parameters:
  output_dim: {choices: [4]}
  lambda: {low: 0.1, high: 2, log: true}
  lr: {low: 0.0001, high: 0.01, log: true}
fixed: {batch_size: 16, clusters: 4}
enqueue: [{lambda: 1}]
"""


def test_hosts_are_never_made_on_the_machine_itself(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="unshare"):
        start_hosts(tmp_path, ["head"], tmp_path / ".ssh" / "key")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `ray_up.py` saw."""
    scratch = tmp_path_factory.mktemp("up")
    (scratch / "shared").mkdir()
    make_data(scratch / "shared" / "data")
    make_encoder(scratch / "shared" / "encoder")
    (scratch / "shared" / "space.yaml").write_text(SPACE)
    script = Path(__file__).parent / "ray_up.py"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    own = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*own, sys.executable, str(script), str(scratch)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("FOUND"))
    return json.loads(line.removeprefix("FOUND"))


class TestRealCluster:
    """Skipped unless asked for."""

    pytestmark = real

    def test_every_act_was_played(self, found: dict[str, Any]) -> None:
        assert found["errors"] == []

    def test_up_brings_both_and_a_sweep_runs_there(self, found: dict[str, Any]) -> None:
        assert found["nodes"] == 2
        assert found["trials"] == 2 and found["report"]
        assert found["commits"] == [found["commit"]]

    def test_a_job_through_the_tunnel_goes_on_with_the_sweep(self, found: dict[str, Any]) -> None:
        assert found["dashboard"] and found["job"]
        assert found["trials_after_job"] == 3

    def test_only_ssh_and_the_control_plane_are_reached_from_outside(self, found: dict[str, Any]) -> None:
        assert found["head_reached"] == [22, 6379, 52365]
        assert found["worker_reached"] == [22, 52365]
        assert [address for address, port, _ in found["head_listens"] if port == 8265] == ["127.0.0.1"]
        everywhere = [port for listens in ("head_listens", "worker_listens") for _, port, _ in found[listens]]
        assert 10001 not in everywhere

    def test_without_the_token_nothing_is_told(self, found: dict[str, Any]) -> None:
        assert found["jobs_without_token"] == 401 and found["agent_without_token"] == 401
        code, said = found["gcs_without_token"]
        assert code != 0 and "auth" in said.lower()

    def test_the_token_is_its_users_alone(self, found: dict[str, Any]) -> None:
        assert found["token_there"] == [True, True] and found["token_mode"] == ["0o600", "0o600"]
        assert found["token_in"] == []

    def test_down_ends_the_head(self, found: dict[str, Any]) -> None:
        assert found["head_after_down"] == []
