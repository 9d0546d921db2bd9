"""`deltatag serve` shows the pages of reports and Data Docs, and no other file."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from deltatag.__main__ import main
from deltatag.serve import application
from pipelines.settings.configuration import load_configuration

HIDDEN = (
    "/deltatag.toml",
    "/report/../deltatag.toml",
    "/report/..%2Fdeltatag.html",
    "/report/%2Fetc%2Fpasswd.html",
    "/report/none.html",
    "/report/%00.html",
    "/report/%ED%A0%80.html",
    f"/report/{'a' * 300}.html",
    "/report/folder.html",
    "/data_docs/s.json",
    "/.deltatag/s.html",
    "/report/",
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder with a configuration, two reports and Data Docs."""
    (tmp_path / "report" / "folder.html").mkdir(parents=True)
    (tmp_path / ".deltatag" / "data_docs").mkdir(parents=True)
    (tmp_path / "deltatag.toml").write_text('[lake]\nroot = "lake"\n')
    (tmp_path / "deltatag.html").write_text("hidden")
    with suppress(OSError):  # file systems of macOS have no such names
        (tmp_path / "report" / os.fsdecode(b"\xff.html")).write_text("not listed")
    for name in ("report/s.html", "report/größe.html", ".deltatag/data_docs/index.html"):
        (tmp_path / name).write_text(f"the page {name}", encoding="utf-8")
    (tmp_path / ".deltatag" / "data_docs" / "s.json").write_text("{}")
    return tmp_path


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """Holds connections open until the server has ended, if a test asks for it before `port`."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def port(lake: Path) -> Iterator[int]:
    """The port of a server for that folder, which is interrupted at the end and ends quietly."""
    command = [sys.executable, "-m", "deltatag", "--config", str(lake), "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.fullmatch(r"The pages are at http://127\.0\.0\.1:(\d+)/ .*\n", process.stdout.readline())
    assert found
    yield int(found[1])
    process.send_signal(2)
    assert (process.communicate(timeout=30), process.returncode) == (("", "deltatag: stopped.\n"), 130)


@pytest.mark.slow
def test_all_pages_are_shown_and_nothing_else(port: int) -> None:
    def get(path: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    status, start = get("/")
    links = re.findall(r'href="([^"]*)"', start)
    assert (status, links) == (200, ["data_docs/index.html", f"report/{quote('größe')}.html", "report/s.html"])
    names = (".deltatag/data_docs/index.html", "report/größe.html", "report/s.html")
    assert [get(f"/{link}") for link in links] == [(200, f"the page {name}") for name in names]
    assert [get(path)[0] for path in HIDDEN] == [404] * len(HIDDEN)


@pytest.mark.slow
def test_a_client_that_does_not_read_holds_no_server_that_is_stopped(lake: Path, clients: ExitStack, port: int) -> None:
    with (lake / "report" / "long.html").open("wb") as file:
        file.truncate(1 << 26)  # more than sockets buffer
    client = clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
    client.sendall(b"GET /report/long.html HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.recv(12) == b"HTTP/1.1 200"


def test_a_port_in_use_is_an_error_in_a_sentence(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["--config", str(lake), "serve", "--port", str(port)]) == 1
    assert f"No page can be served at 127.0.0.1, port {port}: " in capsys.readouterr().err


@pytest.mark.parametrize("host", ["none.invalid", "192.0.2.1", "a" * 70 + ".invalid"])
def test_an_address_of_another_machine_is_no_fault_of_the_port(host: str, lake: Path, capsys) -> None:
    assert main(["--config", str(lake), "serve", "--host", host, "--port", "0"]) == 1
    assert capsys.readouterr().err.endswith(". Give the address of this machine as --host.\n")


def test_a_page_that_the_user_may_not_read_is_told(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, page = application(load_configuration(lake / "deltatag.toml")).routes
    request = SimpleNamespace(path_params={"kind": "report", "name": "s"})
    assert page.endpoint(request).status_code == 200
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK or Path(path).name != "s.html")
    assert page.endpoint(request).status_code == 403


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_what_is_no_port_is_wrong_usage(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", port]) == 2
    assert "is not a port" in capsys.readouterr().err
