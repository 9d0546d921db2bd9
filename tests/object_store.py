"""An S3 server, of as much of the protocol as delta-rs needs, that keeps objects in memory.

It answers as S3's documentation says: a PUT with `If-None-Match: *` creates an object that is not there yet, or fails.
It is a process of its own, since some calls of delta-rs stop all threads of theirs until they are answered.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree
from xml.sax.saxutils import escape


class _Objects:
    """The objects by their paths (`bucket/key`), and how requests are hindered, by methods and parts of paths."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self.hindered: dict[str, Any] = {}
        self.lock = threading.Lock()

    def hinders(self, how: str, method: str, path: str) -> bool:
        """Whether a request is hindered in one of the ways that `ObjectStore.hinder` names."""
        wanted, part = self.hindered.get(how) or ("", "")
        if wanted != method or part not in path:
            return False
        if "kill" in self.hindered:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.hindered["kill"], signal.SIGKILL)
        return True

    def put(self, path: str, data: bytes, only_new: bool) -> bool:
        """Write an object; False, with nothing written, if it is there and only a new one is wanted."""
        with self.lock:
            if only_new and path in self.objects:
                return False
            self.objects[path] = data, time.time()
            return True

    def listed(self, path: str, query: dict[str, list[str]]) -> str:
        """The answer to ListObjectsV2."""
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("start-after", [""])[0]
        bucket = path.split("/")[0] + "/"
        found, folders = [], set()
        for name, (data, at) in sorted(self.objects.items()):
            key = name.removeprefix(bucket)
            if not name.startswith(bucket + prefix) or key <= after:
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
                continue
            written = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at - self.hindered.get("age", 0)))
            found.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{written}</LastModified><ETag>{_etag(data)}</ETag>"
                f"<Size>{len(data)}</Size></Contents>"
            )
        shared = "".join(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders)
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(found)}{shared}</ListBucketResult>"


_CONTROL = "control"


class _RefusedError(Exception):
    """A request was refused."""


class _Requests(BaseHTTPRequestHandler):
    """The answers to one connection's requests."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # else the headers go out alone, and the body waits for their acknowledgement
    store: _Objects

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def handle_one_request(self) -> None:
        """Answer a request, unless it is refused."""
        with contextlib.suppress(_RefusedError, ConnectionError):
            super().handle_one_request()

    def do_GET(self) -> None:
        """GetObject, HeadObject (as http.server names the methods) and ListObjectsV2."""
        path, query, _ = self._request()
        if path == _CONTROL:
            return self._answer(200, json.dumps([self.store.requests, list(self.store.objects)]).encode())
        if "list-type" in query:
            return self._answer(200, self.store.listed(path, query).encode())
        if path not in self.store.objects:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        data, at = self.store.objects[path]
        headers = {"ETag": _etag(data), "Last-Modified": formatdate(at, usegmt=True), "Accept-Ranges": "bytes"}
        if (asked := self.headers.get("Range")) is None:
            return self._answer(200, data, headers)
        first, last = asked.removeprefix("bytes=").split("-")
        start = int(first) if first else max(len(data) - int(last), 0)
        stop = min(int(last) + 1, len(data)) if first and last else len(data)
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return self._answer(206, data[start:stop], headers)

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        """PutObject and UploadPart."""
        path, query, data = self._request()
        if "uploadId" in query:
            self.store.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = data
        elif not self.store.put(path, data, self.headers.get("If-None-Match") == "*"):
            return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        return self._answer(200, b"", {"ETag": _etag(data)})

    def do_POST(self) -> None:
        """CreateMultipartUpload, CompleteMultipartUpload and DeleteObjects."""
        path, query, data = self._request()
        if path == _CONTROL:
            self.store.hindered = json.loads(data)
            self.store.requests.clear()
            return self._answer(200)
        if "uploads" in query:
            name = uuid.uuid4().hex
            self.store.uploads[name] = {}
            made = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, made.encode())
        if "delete" in query:
            keys = [str(each.text) for each in ElementTree.fromstring(data).iter() if each.tag.endswith("Key")]
            for key in keys:
                self.store.objects.pop(f"{path.rstrip('/')}/{key}", None)
            done = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            return self._answer(200, f"<DeleteResult>{done}</DeleteResult>".encode())
        parts = self.store.uploads.pop(query["uploadId"][0])
        whole = b"".join(parts[number] for number in sorted(parts))
        self.store.put(path, whole, only_new=False)
        made = f"<CompleteMultipartUploadResult><ETag>{_etag(whole)}</ETag></CompleteMultipartUploadResult>"
        return self._answer(200, made.encode())

    def do_DELETE(self) -> None:
        """DeleteObject and AbortMultipartUpload."""
        path, query, _ = self._request()
        if "uploadId" in query:
            self.store.uploads.pop(query["uploadId"][0], None)
        else:
            self.store.objects.pop(path, None)
        self._answer(204)

    def _request(self) -> tuple[str, dict[str, list[str]], bytes]:
        """The path, the query and the body."""
        parts = urlsplit(self.path)
        path = unquote(parts.path).lstrip("/")
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.store.requests.append((self.command, path))
        time.sleep(self.store.hindered.get("delay", 0))
        if self.store.hinders("refuse", self.command, path):
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.wfile.flush()
            raise _RefusedError
        return path, parse_qs(parts.query, keep_blank_values=True), data

    def _answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        if self.store.hinders("lose", self.command, unquote(urlsplit(self.path).path)):
            status, data, headers = 403, b"<Error><Code>AccessDenied</Code></Error>", {}
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class ObjectStore:
    """A server in a process of its own, and the environment variables by which delta-rs reaches it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def hinder(self, **how: Any) -> None:
        """Hinder requests from now on, and forget the former ones. Without arguments, hinder none.

        delay: seconds that each takes; age: seconds by which files seem older. refuse, lose: method and a part of the
        path of requests that fail; those that are refused are not done, of the others only the answer is lost. kill:
        the process that is killed, and not answered.
        """
        urlopen(Request(f"{self.url}/{_CONTROL}", json.dumps(how).encode(), method="POST")).close()

    def seen(self) -> tuple[list[tuple[str, str]], list[str]]:
        """The methods and paths of the requests since the last call of `hinder`, and the paths of all objects."""
        with urlopen(f"{self.url}/{_CONTROL}") as answer:
            requests, objects = json.load(answer)
        return [(method, path) for method, path in requests if path != _CONTROL], objects


@contextmanager
def served() -> Iterator[ObjectStore]:
    """A server that runs as long as the context."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield ObjectStore(int(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Requests", (_Requests,), {"store": _Objects()}))
    print(server.server_address[1], flush=True)
    server.serve_forever()
