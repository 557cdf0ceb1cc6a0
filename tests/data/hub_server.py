"""The few answers of a hub that reading one dataset takes, on this machine: repositories of files, each at one commit."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _entry(kind: str, path: str, data: bytes) -> dict[str, object]:
    return {"type": kind, "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}


def _listing(files: Mapping[str, bytes], folder: str) -> list[dict[str, object]]:
    entries: dict[str, dict[str, object]] = {}
    for path, data in files.items():
        if folder and not path.startswith(folder + "/"):
            continue
        head, more, _ = path[len(folder) + 1 if folder else 0 :].partition("/")
        name = f"{folder}/{head}" if folder else head
        entries[name] = _entry("directory", name, b"") if more else _entry("file", name, data)
    return list(entries.values())


@contextmanager
def serve(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """The address of a hub with these repositories, and the paths asked of it so far."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def as_json(self, value: object) -> None:
            self.answer(200, json.dumps(value).encode(), Content_Type="application/json")

        def do_GET(self) -> None:
            path = unquote(urlparse(self.path).path)
            asked.append(path)
            parts = path.removeprefix("/api").removeprefix("/datasets/").split("/", 4)
            name, verb, revision, file = "/".join(parts[:2]), *[*parts[2:], "", "", ""][:3]
            files = repositories.get(name)
            if files is None:
                self.answer(404, b"{}", X_Error_Code="RepoNotFound")
            elif revision not in ("", "main", COMMIT):
                self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
            elif verb in ("", "revision"):
                siblings = [{"rfilename": f} for f in files]
                self.as_json({"id": name, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []})
            elif verb == "tree":
                self.as_json(_listing(files, file))
            elif verb == "resolve" and file in files:
                self.content(files[file])
            else:
                self.answer(404, b"{}", X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)

        do_HEAD = do_GET

        def content(self, data: bytes) -> None:
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X_Repo_Commit": COMMIT}
            if (wanted := self.headers.get("Range")) is None:
                self.answer(200, data, **headers)
                return
            low, high = wanted.removeprefix("bytes=").split("-")
            first, last = int(low or 0), min(int(high or len(data)), len(data) - 1)
            headers["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
            self.answer(206, data[first : last + 1], **headers)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
