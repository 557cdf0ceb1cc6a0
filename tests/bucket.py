"""An S3 server of this machine (moto's), which a test can take away and bring back."""

from __future__ import annotations

import os
import socket
import urllib.request
from typing import Any

import pytest


class Bucket:
    """One server with the bucket `bench`; it keeps what it has while it is away."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.server: Any = None
        self.start()

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self.server.start()
        self.make()

    def make(self) -> None:
        """The bucket, where it is not there: who mocks AWS in this process (moto's `mock_aws`) empties all servers in it."""
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/bench", method="PUT")).close()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def make_bucket(monkeypatch_env: Any = os.environ) -> Bucket:
    """A server, or a skipped test where moto is not installed."""
    pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    return Bucket()
