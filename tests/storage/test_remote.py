"""The layer over pyarrow, on a real S3 server of this machine and on a folder."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from bucket import Bucket
from pyarrow.fs import S3FileSystem

from distilbench.errors import InputError
from distilbench.heartbeat import subscribe, unsubscribe
from distilbench.storage import remote as module
from distilbench.storage.remote import Absent, Remote, check_uri, files_in, local_name
from distilbench.storage.retry import StorageGone


def make_folder(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_files_go_in_and_come_out(storage: Remote, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "in", a="1", b__c="22", empty="")
    assert storage.list() == {} and storage.read("a") is None
    storage.put_all(files_in(folder))
    assert {name: entry.size for name, entry in storage.list().items()} == {"a": 1, "b/c": 2, "empty": 0}
    assert storage.read("b/c") == b"22"
    assert (storage / "b").read("c") == b"22" and (storage / "b").name == "b"
    (storage / "überlauf 日本").write("ü", b"3")  # a run may have a name in any script
    assert (storage / "überlauf 日本").read("ü") == b"3"
    (storage / "überlauf 日本").delete_all()
    (storage / "other").write("x", b"x")
    storage.fetch_all(tmp_path / "out", ["a", "b/c", "empty"])
    assert {n: p.read_text() for n, p in files_in(tmp_path / "out").items()} == {"a": "1", "b/c": "22", "empty": ""}
    storage.delete("a", "not there")
    (storage / "b").delete_all()
    (storage / "nothing").delete_all()
    assert set(storage.list()) == {"empty", "other/x"}
    with pytest.raises(Absent):
        storage.fetch("a", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_file_of_several_chunks_is_whole(storage: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 1 << 20)
    content = bytes(range(256)) * 30_000
    (tmp_path / "large").write_bytes(content)
    told: list[int] = []
    storage.put(tmp_path / "large", "large")
    listening = subscribe(lambda: told.append(1))
    storage.fetch("large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    assert (alone := len(told)) > 5, "a worker's watchdog hears of each chunk"
    storage.put(tmp_path / "large", "again")
    storage.fetch_all(tmp_path / "both", storage.list())
    unsubscribe(listening)
    assert len(told) >= 3 * alone, "also of what other threads fetch for it"


def test_the_last_ones_come_last(storage: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, done = make_folder(tmp_path / "in", a="1", b="2", z="3"), []
    put = Remote.put
    monkeypatch.setattr(Remote, "put", lambda self, path, name: (put(self, path, name), done.append(name)))
    storage.put_all(files_in(folder), last="a")
    assert sorted(done[:2]) == ["b", "z"] and done[2] == "a"


def test_what_cannot_be_read_here_leaves_nothing_there(storage: Remote, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        storage.put(tmp_path / "none", "none")
    assert storage.list() == {}


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIAKEY:SECRET@bench/project",
        "s3://AKIAKEY@bench/project",
        "s3://AKIAKEY:SEC/RET@bench/project",
        "s3://bench/project?secret_key=SECRET",
        "s3://bench/project?access_key=AKIAKEY&secret_key=SECRET",
        "abfss://box:SECRET@account.dfs.core.windows.net/project",
        "abfss://box@account.dfs.core.windows.net/project?sig=SECRET",
        "gs://SECRET@bench/project",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(InputError) as caught:
        check_uri(uri)
    said = str(caught.value)
    assert "credentials" in said and "AWS_ACCESS_KEY_ID" in said
    assert not any(secret in said for secret in ("AKIAKEY", "SECRET", "SEC/RET"))


@pytest.mark.parametrize(
    ("uri", "said"),
    [("runs/here", "not a URI"), ("s3:///project", "no bucket"), ("http://host/project", "expected one of s3, ")],
)
def test_what_is_no_storage_is_refused(uri: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_uri(uri)


def test_a_uri_is_taken_without_its_last_slash() -> None:
    assert check_uri("file:///bench/project/") == "file:///bench/project"
    assert check_uri("abfss://box@account.dfs.core.windows.net/project").startswith("abfss://box@")


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up"])
def test_a_name_that_leads_out_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="leads out"):
        local_name(name)


def test_a_bucket_that_is_not_there_is_one_clear_error_at_once(bucket: Bucket) -> None:
    with pytest.raises(StorageGone, match="NO_SUCH_BUCKET"):
        Remote("s3://nowhere/project").check()


def test_denied_access_is_one_clear_error_at_once(s3: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def deny(*_: object, **__: object) -> None:
        raise OSError("When ...: AWS Error ACCESS_DENIED during PutObject operation: Access Denied")

    monkeypatch.setattr(module, "_write", deny)
    with pytest.raises(StorageGone, match="ACCESS_DENIED"):
        s3.write("a", b"1")


def test_a_server_that_is_away_is_waited_for(s3: Remote, bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    bucket.stop()
    back = threading.Timer(3.0, bucket.start)
    back.start()
    s3.put(tmp_path / "a", "a")
    back.join()
    assert s3.read("a") == b"1"


@pytest.mark.slow
def test_a_server_that_stays_away_is_said(s3: Remote, bucket: Bucket, hasty: None) -> None:
    bucket.stop()
    with pytest.raises(StorageGone, match=r"storage failed for 1 s.*repeat the command"):
        s3.read("a")


def test_files_are_not_unpacked_by_their_names(storage: Remote, tmp_path: Path) -> None:
    # pyarrow's streams decompress NAME.gz unless told otherwise.
    (tmp_path / "a.gz").write_bytes(b"no gzip at all")
    storage.put(tmp_path / "a.gz", "a.gz")
    assert storage.read("a.gz") == b"no gzip at all"


def test_the_endpoint_goes_with_the_prefix(s3: Remote, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.write("a", b"1")
    monkeypatch.delenv("AWS_ENDPOINT_URL")  # a worker whose environment does not say it
    module._filesystem.cache_clear()
    assert s3.endpoint == bucket.endpoint
    assert isinstance(s3._open()[0], S3FileSystem)
    assert s3.read("a") == b"1"
