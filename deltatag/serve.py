"""The verb serve: a web server for the pages of reports and Data Docs, which Dagster's web server does not show."""

from __future__ import annotations

import errno
import html
import os
import socket
from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from deltatag.output import say
from pipelines.errors import PipelineError
from pipelines.pages import DATA_DOCS, REPORT, page_folder
from pipelines.settings.model import Configuration

_HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
"""A browser asks each time whether a page is new: reports are written again under the same name."""
_MOST_SECONDS_TO_STOP = 2
"""Then pages that are still being sent are given up: a browser that does not read holds the server for ever."""
_STYLE = "body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 700px; padding: 1rem 2rem } "
_COLORS = ":root { color-scheme: light dark }"


def serve_action(configuration: Configuration, args: Namespace) -> None:
    """Serve the pages until the process is interrupted; PipelineError if the address cannot be used."""
    server = uvicorn.Server(
        uvicorn.Config(application(configuration), log_level="error", timeout_graceful_shutdown=_MOST_SECONDS_TO_STOP)
    )
    with _bound(args.host, args.port) as listening:
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say(f"The pages are at http://{shown}:{port}/ until you press Ctrl-C.")
        server.run(sockets=[listening])


def application(configuration: Configuration) -> Starlette:
    """The web application: a list of all pages at /, and each page at its address. It serves no other file."""

    def start(_: Request) -> Response:
        """The list of all pages."""
        return HTMLResponse(_list_of_pages(configuration), headers=_HEADERS)

    def page(request: Request) -> Response:
        """One page; status 404 if there is none with that name, 403 if this user may not read it."""
        kind, name = request.path_params["kind"], request.path_params["name"]
        # the route takes no name with a slash, so that the file is in this very folder
        file = page_folder(configuration, kind) / f"{name}.html" if kind in (REPORT, DATA_DOCS) else None
        if file is None or not os.path.isfile(file):  # unlike Path's, not an error for a name that no file can have
            return PlainTextResponse("There is no such page.\n", status_code=404)
        if not os.access(file, os.R_OK):
            return PlainTextResponse("The server may not read this page.\n", status_code=403)
        return FileResponse(file, media_type="text/html", headers=_HEADERS)

    return Starlette(routes=[Route("/", start), Route("/{kind}/{name}.html", page)])


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        is_host = isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL
        cure = "Give the address of this machine as --host" if is_host else "Give another --port"
        raise PipelineError(f"No page can be served at {host}, port {port}: {error}. {cure}.") from error


def _list_of_pages(configuration: Configuration) -> str:
    """The page at /: a link to the report of each scope, with the time it was written, and one to Data Docs."""
    links = "".join(f"<li>{each}</li>" for each in _links(configuration))
    if not links:
        links = (
            "<li>None is written yet. deltatag report writes reports, deltatag run --data-docs writes Data Docs.</li>"
        )
    head = f'<meta charset="utf-8"><title>deltatag: pages</title><style>{_STYLE}{_COLORS}</style>'
    body = f"<h1>Pages of {html.escape(configuration.path.absolute().parent.name)}</h1><ul>{links}</ul>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def _links(configuration: Configuration) -> Iterator[str]:
    documents = page_folder(configuration, DATA_DOCS) / "index.html"
    if documents.is_file():
        yield f'<a href="{DATA_DOCS}/index.html">Data Docs: the quality of all tables</a>, {_written(documents)}'
    for file in sorted(page_folder(configuration, REPORT).glob("*.html")):
        if file.stem.isidentifier() and file.is_file():  # as names of scopes are
            name = html.escape(file.stem)
            yield f'<a href="{REPORT}/{quote(file.name)}">Report of {name}</a>, {_written(file)}'


def _written(file: Path) -> str:
    return f"written {datetime.fromtimestamp(file.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"
