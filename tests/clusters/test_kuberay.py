"""The manifests for KubeRay: their fields are those of its types (ray.io/v1), and what they ask fits together."""

from __future__ import annotations

import re
from typing import Any

import pytest
from files import HOOK, KUBERAY, ROOT, documents

from distilbench.cli import app

CLUSTER = {
    "rayVersion", "authOptions", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs",
    "suspend", "managedBy", "headServiceAnnotations", "gcsFaultToleranceOptions",
}  # fmt: skip
JOB = {
    "entrypoint", "submissionMode", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "rayClusterSpec",
    "activeDeadlineSeconds", "suspend", "runtimeEnvYAML", "submitterPodTemplate", "entrypointNumCpus", "clusterSelector",
    "jobId", "metadata", "managedBy", "submitterConfig", "deletionStrategy", "entrypointNumGpus", "entrypointResources",
}  # fmt: skip
HEAD = {"serviceType", "headService", "enableIngress", "rayStartParams", "template"}
GROUP = {
    "groupName",
    "replicas",
    "minReplicas",
    "maxReplicas",
    "idleTimeoutSeconds",
    "rayStartParams",
    "template",
    "numOfHosts",
}
AUTOSCALER = {
    "version",
    "idleTimeoutSeconds",
    "upscalingMode",
    "resources",
    "env",
    "envFrom",
    "image",
    "securityContext",
}
POD = {
    "serviceAccountName", "restartPolicy", "containers", "volumes", "terminationGracePeriodSeconds", "nodeSelector",
    "tolerations",
}  # fmt: skip
CONTAINER = {"name", "image", "ports", "env", "resources", "volumeMounts"}


def cluster(name: str) -> dict[str, Any]:
    found = documents(name)
    return found["RayJob"]["spec"]["rayClusterSpec"] if "RayJob" in found else found["RayCluster"]["spec"]


def pods(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    groups = {g["groupName"]: g["template"] for g in spec["workerGroupSpecs"]}
    return {"head": spec["headGroupSpec"]["template"], **groups}


def known(container: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}


@pytest.mark.parametrize("name", KUBERAY)
def test_its_fields_are_kuberays(name: str) -> None:
    spec = cluster(name)
    assert (
        spec.keys() <= CLUSTER
        and spec["headGroupSpec"].keys() <= HEAD
        and spec["autoscalerOptions"].keys() <= AUTOSCALER
    )
    for group in spec["workerGroupSpecs"]:
        assert group.keys() <= GROUP
        assert all(isinstance(v, str) for v in group["rayStartParams"].values())
    assert all(isinstance(v, str) for v in spec["headGroupSpec"]["rayStartParams"].values())
    for template in pods(spec).values():
        assert template.keys() == {"metadata", "spec"} and template["spec"].keys() <= POD
        (container,) = template["spec"]["containers"]
        assert container.keys() <= CONTAINER
        for variable in container["env"]:
            assert variable.keys() in ({"name", "value"}, {"name", "valueFrom"}) and isinstance(
                variable.get("value", ""), str
            )
        volumes = {v["name"] for v in template["spec"]["volumes"]}
        assert {m["name"] for m in container["volumeMounts"]} == volumes
    for kind, document in documents(name).items():
        assert document["apiVersion"] == {"NetworkPolicy": "networking.k8s.io/v1"}.get(kind, "ray.io/v1")


@pytest.mark.parametrize("name", KUBERAY)
def test_the_versions_are_the_pinned_ones(name: str) -> None:
    pinned = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned and cluster(name)["rayVersion"] == pinned[1]
    for kind, template in pods(cluster(name)).items():
        (container,) = template["spec"]["containers"]
        assert container["image"] == f"REGISTRY/distilbench:{pinned[1]}-{'gpu' if kind == 'gpu' else 'cpu'}"
    dockerfile = (ROOT / "clusters" / "Dockerfile").read_text()
    assert f"REGISTRY/distilbench:{pinned[1]}-gpu build" in dockerfile


@pytest.mark.parametrize("name", KUBERAY)
def test_what_the_groups_bring_is_what_trials_are_fitted_to(name: str) -> None:
    spec = cluster(name)
    brings = []
    for group in spec["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        gpus = container["resources"]["limits"].get("nvidia.com/gpu")
        brings.append(
            f"{group['maxReplicas']}x{container['resources']['limits']['cpu']}" + (f":{gpus}" if gpus else "")
        )
        assert (group["groupName"] == "gpu") == bool(gpus)
        assert group["minReplicas"] == 0 and group["template"]["spec"]["restartPolicy"] == "Never"
    (head,) = spec["headGroupSpec"]["template"]["spec"]["containers"]
    assert known(head)["DISTILBENCH_GROW_TO"] == ",".join(brings)
    assert spec["enableInTreeAutoscaling"] is True and spec["autoscalerOptions"]["idleTimeoutSeconds"] <= 600
    assert int(spec["headGroupSpec"]["rayStartParams"]["num-cpus"]) < int(head["resources"]["limits"]["cpu"])


@pytest.mark.parametrize("name", KUBERAY)
def test_who_reaches_it(name: str) -> None:
    spec, policy = cluster(name), documents(name)["NetworkPolicy"]["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP" and "enableIngress" not in spec["headGroupSpec"]
    (head,) = spec["headGroupSpec"]["template"]["spec"]["containers"]
    assert known(head)["RAY_START_HOOK"] == HOOK
    assert 10001 not in [port["containerPort"] for port in head["ports"]]
    dashboard = spec["headGroupSpec"]["rayStartParams"]["dashboard-host"]
    assert dashboard == ("0.0.0.0" if "rayjob" in name else "127.0.0.1")
    selected = policy["podSelector"]["matchLabels"]
    for template in pods(spec).values():
        assert template["metadata"]["labels"] == selected
    own, operator = policy["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": selected}}]}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]
    assert operator["from"][0]["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}


def test_both_have_the_same_cluster() -> None:
    one, other = map(cluster, KUBERAY)
    for spec in (one, other):
        del spec["headGroupSpec"]["rayStartParams"]["dashboard-host"]
    assert one == other


def test_the_job_runs_a_sweep_and_goes_on_with_a_new_head() -> None:
    import typer

    job = documents("clusters/kuberay-rayjob.yaml")["RayJob"]["spec"]
    assert job.keys() <= JOB
    assert job["backoffLimit"] >= 1 and job["shutdownAfterJobFinishes"] and job["submissionMode"] == "HTTPMode"
    program, command, *arguments = job["entrypoint"].split()
    options = {o for p in typer.main.get_command(app).commands[command].params for o in p.opts}  # type: ignore[attr-defined]
    assert program == "distilbench" and {a for a in arguments if a.startswith("--")} <= options
    assert arguments[arguments.index("--address") + 1] == "auto"
