"""Whoever reads our output may stop reading, or not be there, or read other letters than UTF-8's; a connection that
breaks elsewhere is an error all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    what = "sys.stdout.isatty(); sys.stderr.isatty(); print(1); print(2, file=sys.stderr); return 7"
    process = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", SCRIPT.format(what=what)])
    assert process.returncode == 7


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_the_encoding_lacks_are_escaped_as_in_json(encoding: str) -> None:
    what = "from deltatag.output import print_json; print_json('\\xe9\\u251c\\U0001f600'); return 0"
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    command = [sys.executable, "-c", SCRIPT.format(what=what)]
    process = subprocess.run(command, capture_output=True, env=environment)
    assert (json.loads(process.stdout.decode(encoding)), process.stderr) == ("\xe9\u251c\U0001f600", b"")
