"""Clusters as the command line gives them."""

from __future__ import annotations

import pytest

from distilbench.cluster.resources import TrialShare
from distilbench.errors import InputError
from distilbench.planning.machines import Cluster, Nodes, clusters_for, parse_gpus, parse_nodes

OWN = Cluster("this machine", (Nodes(1, 2),))


def test_nodes() -> None:
    cluster = parse_nodes("8x16:1@1.20, 1x8@0.4")
    assert cluster.nodes == (Nodes(8, 16, 1, 1.2), Nodes(1, 8, 0, 0.4))
    assert (cluster.cpus, cluster.gpus) == (136, 8)
    assert cluster.dollars_per_hour == pytest.approx(10.0)
    assert parse_nodes("2x4").dollars_per_hour is None
    assert parse_nodes("2x4@1,1x4").dollars_per_hour is None, "the price of one is not known"


def test_gpus() -> None:
    one, eight, many = parse_gpus("1, 8,64@2.5", cpus_per_gpu=4)
    assert one.nodes == (Nodes(1, 4, 1, 2.5),) and one.name == "1 GPU"
    assert eight.dollars_per_hour == 20.0 and many.gpus == 64 and many.cpus == 256
    assert parse_gpus("2")[0].dollars_per_hour is None


@pytest.mark.parametrize("text", ["", "8", "8x", "0x4", "4x0", "2x4:", "2x4@", "2x4@-1", "2x4,", "2x4:1@one", "a8x4"])
def test_bad_nodes(text: str) -> None:
    with pytest.raises(InputError, match="is not COUNTxCPUS") as error:
        parse_nodes(text)
    assert f"--nodes {text}:" in str(error.value)


@pytest.mark.parametrize("text", ["", "0", "1,", "1,x", "-1", "1@", "1@x", "1.5"])
def test_bad_gpus(text: str) -> None:
    with pytest.raises(InputError, match="expected numbers of GPUs such as 1,8,64"):
        parse_gpus(text)


@pytest.mark.parametrize(
    ("nodes", "share", "trials"),
    [
        ("1x2", TrialShare(), 2),
        ("4x8", TrialShare(cpus=3), 8),  # two on each node, not ten in all
        ("1x8:1", TrialShare(), 4),
        ("1x2:1", TrialShare(), 2),  # CPUs are scarcer
        ("8x16:2", TrialShare(gpus=1.0), 16),
        ("8x16:2", TrialShare(gpus=2.0), 8),
        ("1x64:4,10x64", TrialShare(), 16),  # only where there are GPUs
        ("1x64:4", TrialShare(gpus=0.0), 64),
        ("8x16:1", TrialShare(at_once=5), 5),
    ],
)
def test_trials_at_once(nodes: str, share: TrialShare, trials: int) -> None:
    assert parse_nodes(nodes).trials_at_once(share) == trials


def test_as_the_search_shares_a_cluster(cluster: None) -> None:
    from distilbench.cluster.resources import trial_resources

    for share in (TrialShare(), TrialShare(cpus=2), TrialShare(at_once=1)):
        assert parse_nodes("1x2").trials_at_once(share) == trial_resources(share).concurrency


def test_a_trial_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="2x4: a trial of 8 CPUs and 0 GPUs fits on none of its nodes"):
        parse_nodes("2x4").trials_at_once(TrialShare(cpus=8))


def test_what_is_planned_for() -> None:
    assert [c.name for c in clusters_for(None, (), 8, OWN)] == ["this machine", "1 GPU", "8 GPUs", "64 GPUs"]
    assert [c.name for c in clusters_for("2", ("4x8",), 8, OWN)] == ["2 GPUs", "4x8"]
