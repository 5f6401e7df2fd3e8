"""Against a server on 127.0.0.1 that can send ranges, and can be made to misbehave."""

import dataclasses
import gzip
import hashlib
import io
import socket
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from refprotofl.core.errors import DataError
from refprotofl.data import fetch, load_dataset
from refprotofl.data.download import download
from refprotofl.data.locations import download_set
from refprotofl.data.standard import CIFAR100, MNIST, STANDARD

CONTENT = np.random.Generator(np.random.Philox(1)).bytes(300_000)
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.ranges = True  # whether Range is understood
        self.cut_after = []  # bytes after which each of the next answers breaks off
        self.asked = []  # (path, Range) of every request

    def url(self, name=""):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.server.cut_after.pop(0) if self.server.cut_after else None
        self.wfile.write(content[start:][:cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        running.files["file.bin"] = CONTENT
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def dead_url():
    """The URL of a port on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/"


def visible(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_a_download(server, tmp_path):
    file = download([server.url("file.bin")], CHECKSUM, tmp_path / "new", "hint")
    assert file.read_bytes() == CONTENT
    assert visible(tmp_path / "new") == ["file.bin"]
    assert download([server.url("file.bin")], CHECKSUM, tmp_path / "new", "hint") == file
    assert len(server.asked) == 1  # what is here is not asked for again


def test_a_part_is_continued(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:100_000])
    assert download([server.url("file.bin")], CHECKSUM, tmp_path, "hint").read_bytes() == CONTENT
    assert server.asked == [("/file.bin", "bytes=100000-")]
    assert visible(tmp_path) == ["file.bin"]


def test_a_connection_that_breaks_off_is_taken_up_again(server, tmp_path):
    server.cut_after = [50_000, 70_000]
    assert download([server.url("file.bin")], CHECKSUM, tmp_path, "hint").read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=50000-", "bytes=120000-"]


def test_a_server_that_gives_up_leaves_the_part_for_the_next_time(server, tmp_path):
    server.cut_after = [50_000, 0]
    with pytest.raises(DataError, match=r"the connection .*50,000"):
        download([server.url("file.bin")], CHECKSUM, tmp_path, "hint")
    assert visible(tmp_path) == ["file.bin.part"]
    assert download([server.url("file.bin")], CHECKSUM, tmp_path, "hint").read_bytes() == CONTENT
    assert server.asked[-1] == ("/file.bin", "bytes=50000-")


def test_the_next_mirror_continues(server, dead_url, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    urls = [dead_url + "file.bin", server.url("missing.bin"), server.url("file.bin")]
    assert download(urls, CHECKSUM, tmp_path, "hint").read_bytes() == CONTENT
    assert server.asked[-1] == ("/file.bin", "bytes=1000-")


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    assert download([server.url("file.bin")], CHECKSUM, tmp_path, "hint").read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"x" * 1000, b"x" * 300_000, b"x" * 400_000])
def test_a_part_of_something_else_is_given_up(server, tmp_path, stale):
    (tmp_path / "file.bin.part").write_bytes(stale)
    assert download([server.url("file.bin")], CHECKSUM, tmp_path, "hint").read_bytes() == CONTENT


def test_a_part_that_is_complete(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert download([server.url("file.bin")], CHECKSUM, tmp_path, "hint").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path):
    with pytest.raises(DataError, match="does not have its known checksum"):
        download([server.url("file.bin")], "sha256:" + "0" * 64, tmp_path, "hint")
    assert visible(tmp_path) == []


def test_offline_every_url_is_named_with_what_to_do(server, dead_url, tmp_path):
    offline = dataclasses.replace(MNIST, mirrors=(dead_url, server.url("mirror/")))
    with pytest.raises(DataError) as raised:
        download_set(offline, tmp_path)
    said = str(raised.value)
    assert f"{dead_url}train-images-idx3-ubyte.gz: no connection" in said
    assert f"{server.url('mirror/train-images-idx3-ubyte.gz')}: the server answered 404" in said
    assert "into DIR/mnist and pass --data DIR, or set REFPROTOFL_DATA=DIR" in said


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be stored"):
        download([server.url("file.bin")], CHECKSUM, tmp_path / "file", "hint")


def md5(content):
    return "md5:" + hashlib.md5(content).hexdigest()


def sha256(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def test_loading_downloads_idx_files_once_into_the_cache(server, tmp_path, write_idx_set, monkeypatch):
    write_idx_set(tmp_path)
    served = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    server.files |= served
    downloads = {name: md5(served[name]) for name in MNIST.downloads}
    contents = {name: sha256(gzip.decompress(served[f"{name}.gz"])) for name in MNIST.contents}
    known = dataclasses.replace(MNIST, mirrors=(server.url(),), downloads=downloads, contents=contents)
    monkeypatch.setitem(STANDARD, "mnist", known)
    for _ in range(2):
        assert len(load_dataset("mnist").train_inputs) == 20
    assert len(server.asked) == 4
    assert fetch("mnist", None).endswith("refprotofl/mnist")
    # A named folder gets the set, whatever lies elsewhere; what is on this machine is not downloaded again.
    assert fetch("mnist", tmp_path / "asked") == str(tmp_path / "asked" / "mnist")
    assert visible(tmp_path / "asked" / "mnist") == sorted(MNIST.contents)
    assert len(load_dataset("mnist", tmp_path / "asked").train_inputs) == 20
    assert len(server.asked) == 4
    # Unless it is not as published there.
    cached = Path(fetch("mnist", None))
    (cached / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    assert fetch("mnist", tmp_path / "again") == str(tmp_path / "again" / "mnist")
    assert len(server.asked) == 8
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be stored in"):
        fetch("mnist", tmp_path / "file")


def test_an_archive_is_laid_out_and_removed(server, tmp_path, cifar_records, monkeypatch):
    contents = {"train.bin": cifar_records([[0, 1], [0, 2]]), "test.bin": cifar_records([[0, 2]])}
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    server.files["cifar-100-binary.tar.gz"] = stored.getvalue()
    known = dataclasses.replace(
        CIFAR100,
        mirrors=(server.url(),),
        downloads={"cifar-100-binary.tar.gz": md5(stored.getvalue())},
        contents={name: sha256(content) for name, content in contents.items()},
    )
    monkeypatch.setitem(STANDARD, "cifar100", known)
    assert fetch("cifar100", tmp_path / "data") == str(tmp_path / "data" / "cifar-100-binary")
    assert visible(tmp_path / "data") == ["cifar-100-binary"]
    assert load_dataset("cifar100", tmp_path / "data").train_labels.tolist() == [1, 2]
    assert fetch("cifar100", tmp_path / "data")
    assert len(server.asked) == 1
    (tmp_path / "data" / "cifar-100-binary" / "train.bin").write_bytes(contents["test.bin"])
    with pytest.raises(DataError, match=r"the contents of train\.bin"):
        fetch("cifar100", tmp_path / "data")


def test_two_at_a_time_download_once(server, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(download([server.url("file.bin")], CHECKSUM, tmp_path, "")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(server.asked) == 1
    assert found[0].read_bytes() == CONTENT
