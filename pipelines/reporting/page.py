"""Renders the report of one scope as one self-contained HTML file."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end the `script` element that has the data, and their escapes in JSON."""


def page(contents: Mapping[str, Any]) -> str:
    """The page as HTML. Its data are JSON, which the page's script shows as text, never as HTML."""
    data = json.dumps(contents, default=str, ensure_ascii=False, allow_nan=False)
    for character, escaped in _ESCAPED.items():
        data = data.replace(character, escaped)
    frame = (files("pipelines.reporting") / "page.html").read_text("utf-8")
    title, _, rest = frame.partition("{{scope}}")
    before, _, after = rest.partition("{{data}}")
    return f"{title}{html.escape(str(contents['scope']))}{before}{data}{after}"
