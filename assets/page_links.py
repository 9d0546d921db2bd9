"""Links from metadata to the pages of reports and Data Docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.pages import page_url
from pipelines.settings.model import Configuration


def page_link(configuration: Configuration, kind: str, page: Path) -> dg.MetadataValue[Any]:
    """The address of a page if `[lake] pages_url` is configured, else its path: no browser follows a `file://` link."""
    url = page_url(configuration, kind, page)
    return dg.MetadataValue.path(str(page)) if url is None else dg.MetadataValue.url(url)
