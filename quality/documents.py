"""Data Docs: one page for each suite, rendered by Great Expectations, that needs nothing from any other host."""

from __future__ import annotations

import html
import json
import os
import re
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quality.findings import ERROR, Finding

INDEX = "index.html"

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #212529; margin: 0 auto; max-width: 1100px; padding: 1rem 2rem }
a { color: #0b5394; text-decoration: none } a:hover { text-decoration: underline }
h1, h2, h3, h4, h5, h6 { line-height: 1.2; margin: .4rem 0; font-weight: 600 }
h1 { font-size: 1.6rem } h4, h5 { font-size: 1.1rem } .h6, h6 { font-size: 1rem; font-weight: 600 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem }
th, td { border-bottom: 1px solid #dee2e6; padding: .35rem .6rem; text-align: left; vertical-align: top }
th { background: #f1f3f5 } code { background: #f1f3f5; padding: 0 .25rem }
.alert { background: #e9ecef; border-radius: .25rem; padding: .5rem .8rem; margin: 1rem 0 .5rem }
.badge { border-radius: .25rem; padding: .1rem .4rem; background: #e9ecef; font-weight: 600 }
.text-success::before { content: "passed" } .text-danger::before { content: "FAILED" }
.text-warning::before { content: "warning" }
.text-success, .passed { color: #18794e } .text-danger, .failed { color: #b42318 }
.text-warning, .warned { color: #8a5a00 } .failed { font-weight: 700 } i { font-style: normal; font-weight: 600 }
.cooltip .top, .btn-group, .card-header, .ge-navigation-sidebar-container, .card { display: none }
.breadcrumb { list-style: none; padding: 0; margin: 0 } .breadcrumb-item { display: inline }
.breadcrumb-item + .breadcrumb-item::before { content: " / " } .collapse { display: none }
"""
_OUTSIDE = (
    re.compile(r"<style\b.*?</style>", re.DOTALL | re.IGNORECASE),
    re.compile(r"<footer\b.*?</footer>", re.DOTALL | re.IGNORECASE),
    re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE),
    re.compile(r"<link\b[^>]*>", re.IGNORECASE),
    re.compile(r"<img\b[^>]*>", re.IGNORECASE),
    re.compile(r"<p class=\"m-0\">\s*<a data-toggle=\"collapse\".*?</p>", re.DOTALL),
)


def write_page(folder: Path, suite: str, findings: Sequence[Finding], result: Any) -> Path | None:
    """Write the suite's page and the index; the page's path, or None where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / f"{suite}.html"
        _replace(page, stand_alone(_render(result)))
        _replace(folder / f"{suite}.json", json.dumps(_summary(suite, findings)))
        _replace(folder / INDEX, _index(folder))
    except OSError:
        return None
    return page


def _render(result: Any) -> str:
    """The page as Great Expectations renders it."""
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaPageView

    return str(DefaultJinjaPageView().render(ValidationResultsPageRenderer(run_info_at_end=True).render(result)))


def stand_alone(page: str) -> str:
    """The page without scripts, styles and pictures of other hosts, with a small style of its own instead."""
    for pattern in _OUTSIDE:
        page = pattern.sub("", page)
    page = re.sub(r"href=\"[^\"#]*index\.html\"", f'href="{INDEX}"', page)
    page = re.sub(r"<a href=\"[^\"]*expectations/[^\"]*\"\s*>(.*?)</a>", r"\1", page)
    return page.replace("</head>", f"<style>{_STYLE}</style></head>", 1)


def _summary(suite: str, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "suite": suite,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "findings": [[f.expectation, f.severity, f.success, f.message] for f in findings],
    }


def _index(folder: Path) -> str:
    """The first page: every suite as it was found last."""
    sections = []
    for path in sorted(folder.glob("*.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        rows = "".join(_row(*finding) for finding in summary["findings"])
        name, at = html.escape(summary["suite"]), html.escape(summary["at"])
        sections.append(
            f'<h4><a href="{name}.html">{name}</a></h4><p>Judged at {at}</p><table><tr><th>Expectation</th>'
            f"<th>Result</th><th>Message</th></tr>{rows}</table>"
        )
    head = f'<meta charset="utf-8"><title>deltatag: quality</title><style>{_STYLE}</style>'
    body = f"<h1>Quality of deltatag's tables</h1>{''.join(sections)}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def _row(name: str, severity: str, success: bool, message: str) -> str:
    kind, text = (
        ("passed", "passed") if success else ("failed", "FAILED") if severity == ERROR else ("warned", severity)
    )
    return f'<tr><td>{html.escape(name)}</td><td class="{kind}">{text}</td><td>{html.escape(message)}</td></tr>'


def _replace(path: Path, text: str) -> None:
    """Write beside and rename, so that a reader never sees half a page."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
