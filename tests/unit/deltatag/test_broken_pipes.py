"""Whoever reads our output may stop reading; a connection that breaks elsewhere is an error all the same."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from deltatag import __main__, verbs
def broken(parsed):
    {what}
verbs.status_verb = broken
sys.exit(__main__.main(["status"]))
"""
SOCKET = "import socket; a, b = socket.socketpair(); b.close(); a.send(b'x'); a.send(b'x')"
OUTPUT = "[print('x' * 10_000) for _ in range(1_000)]"


def run(what: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SCRIPT.format(what=what)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_reader_that_has_enough_is_no_error() -> None:
    with run(OUTPUT) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_a_connection_that_breaks_is_an_error() -> None:
    process = run(SOCKET)
    out, err = process.communicate()
    assert (out, process.returncode) == (b"", 1)
    assert b"Broken pipe" in err
