"""Where the pages of reports and of Data Docs lie, and the addresses under which `deltatag serve` shows them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from pipelines.settings.model import Configuration

REPORT, DATA_DOCS = "report", "data_docs"
"""The two kinds of pages; a page's address is `<kind>/<name>.html`."""


def page_folder(configuration: Configuration, kind: str) -> Path:
    """The folder of the pages of a kind, next to the configuration."""
    folder = configuration.path.absolute().parent
    return folder / REPORT if kind == REPORT else folder / ".deltatag" / DATA_DOCS


def page_url(configuration: Configuration, kind: str, page: Path) -> str | None:
    """The address of a page below `[lake] pages_url`; None if no address is configured."""
    base = configuration.lake.pages_url
    return None if base is None else f"{base.rstrip('/')}/{kind}/{quote(page.name)}"
