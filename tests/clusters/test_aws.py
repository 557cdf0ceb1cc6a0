"""cluster.yaml through the part of `ray up` that talks to AWS, against moto's AWS in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from files import read

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
moto = pytest.importorskip("moto", reason="moto is not installed")

REGION = "us-west-2"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An account with a default network, and the two instance profiles of clusters/README.md."""
    from ray.autoscaler._private.aws import config, utils

    monkeypatch, home = pytest.MonkeyPatch(), str(tmp_path_factory.mktemp("home"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("HOME", home)  # Ray keeps the key pair in ~/.ssh
    cached = (config._get_subnets_or_die, utils.resource_cache, utils.client_cache)
    with moto.mock_aws():
        for function in cached:
            function.cache_clear()
        iam = boto3.client("iam")
        for name in ("distilbench-head", "distilbench-worker"):
            iam.create_instance_profile(InstanceProfileName=name)
        yield boto3.client("ec2", region_name=REGION)
    for function in cached:
        function.cache_clear()
    monkeypatch.undo()


@pytest.fixture(scope="module")
def bootstrapped(aws: Any) -> dict[str, Any]:
    """The file as `ray up` has it once the account is prepared."""
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.util import prepare_config, validate_config

    images = [image["ImageId"] for image in aws.describe_images()["Images"]]
    config = read("cluster.yaml")
    for node_type, image in zip(config["available_node_types"].values(), images, strict=False):
        assert node_type["node_config"]["ImageId"].startswith("AMI_")
        node_type["node_config"]["ImageId"] = image
    prepared = prepare_config(config)
    validate_config(prepared)
    return bootstrap_aws(prepared)


def test_the_account_is_asked_for_a_network_and_a_key_and_for_no_rights(aws: Any, bootstrapped: dict[str, Any]) -> None:
    for kind, node_type in bootstrapped["available_node_types"].items():
        node = node_type["node_config"]
        assert node["SubnetIds"] and node["SecurityGroupIds"] and node["KeyName"]
        assert node["IamInstanceProfile"] == {"Name": "distilbench-head" if kind == "head" else "distilbench-worker"}
    iam = boto3.client("iam")
    assert len(iam.list_instance_profiles()["InstanceProfiles"]) == 2 and iam.list_roles()["Roles"] == []
    (group,) = (g for g in aws.describe_security_groups()["SecurityGroups"] if g["GroupName"] != "default")
    open_ports = [p.get("FromPort") for p in group["IpPermissions"] if p["IpRanges"]]
    assert open_ports == [22]


@pytest.mark.parametrize(("kind", "machine"), [("head", "m7i.xlarge"), ("cpu", "c7i.4xlarge"), ("gpu", "g6.xlarge")])
def test_each_type_of_node_starts_and_ends(aws: Any, bootstrapped: dict[str, Any], kind: str, machine: str) -> None:
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler.tags import TAG_RAY_NODE_KIND, TAG_RAY_USER_NODE_TYPE

    offered = aws.describe_instance_types(InstanceTypes=[machine])["InstanceTypes"][0]
    resources = bootstrapped["available_node_types"][kind]["resources"]
    assert resources["CPU"] <= offered["VCpuInfo"]["DefaultVCpus"]
    assert resources.get("GPU", 0) == sum(g["Count"] for g in offered.get("GpuInfo", {}).get("Gpus", []))
    provider = AWSNodeProvider(bootstrapped["provider"], bootstrapped["cluster_name"])
    node_config = bootstrapped["available_node_types"][kind]["node_config"]
    tags = {TAG_RAY_NODE_KIND: "head" if kind == "head" else "worker", TAG_RAY_USER_NODE_TYPE: kind}
    provider.create_node(node_config, tags, 1)
    (node,) = provider.non_terminated_nodes({TAG_RAY_USER_NODE_TYPE: kind})
    instance = aws.describe_instances(InstanceIds=[node])["Reservations"][0]["Instances"][0]
    assert instance["InstanceType"] == machine
    assert instance.get("InstanceLifecycle") == (None if kind == "head" else "spot")
    assert instance["IamInstanceProfile"]["Arn"].endswith(
        "distilbench-head" if kind == "head" else "distilbench-worker"
    )
    provider.terminate_node(node)  # without cache_stopped_nodes: for good
    state = aws.describe_instances(InstanceIds=[node])["Reservations"][0]["Instances"][0]["State"]["Name"]
    assert state in ("shutting-down", "terminated")
