"""The hook of `ray start` on a cluster's head: RAY_START_HOOK=distilbench.cluster.start_hook.no_client_server."""

from __future__ import annotations

from typing import Any


def no_client_server(params: Any, head: bool) -> None:
    """Start no server for `ray://` connections (port 10001).

    It listens on the node's address, and Ray has no option for another one, nor one to leave it out. Nothing of ours uses
    it: sweeps are started on the head, or by `ray job submit` through the dashboard's port, which is on localhost.
    `params` are the `RayParams` that `ray start` made of its options; they are changed in place.
    """
    if head:
        params.ray_client_server_port = None
