"""Data Docs: one self-contained page for each suite, rendered by Great Expectations.

The index page has the newest verdict of every suite, even if the suite was evaluated without a page.
"""

from __future__ import annotations

import contextlib
import copy
import html
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from quality.evaluation import Suite, evaluate
from quality.findings import ERROR, Finding

INDEX = "index.html"
_DAY = 24 * 60 * 60.0
"""In seconds."""

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
# matches what refers to other hosts, or needs their scripts
_OUTSIDE = (
    re.compile(r"<style\b.*?</style>", re.DOTALL | re.IGNORECASE),
    re.compile(r"<footer\b.*?</footer>", re.DOTALL | re.IGNORECASE),
    re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE),
    re.compile(r"<link\b[^>]*>", re.IGNORECASE),
    re.compile(r"<img\b[^>]*>", re.IGNORECASE),
    re.compile(r"<p class=\"m-0\">\s*<a data-toggle=\"collapse\".*?</p>", re.DOTALL),
)


def _page_of(folder: Path, suite: str) -> Path:
    """The file of a suite's page; that of a stream called index must not be the index page."""
    return folder / (f"{suite}-.html" if suite.lower() == "index" else f"{suite}.html")


def write_page(folder: Path, suite: str, findings: Sequence[Finding], result: Any) -> Path | None:
    """Write the suite's page and the index; returns the page's path, or None if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page = _page_of(folder, suite)
        _replace(page, stand_alone(_render(result)))
        _note(folder, suite, findings)
    except OSError:
        return None
    return page


def note_verdicts(folder: Path, suites: Sequence[Suite]) -> Path | None:
    """Update the index with suites that are evaluated without a page; returns the page of the last one, if it has one.

    An earlier page is kept if each expectation has the result that it has there, and is deleted otherwise. Nothing is
    written if there are no Data Docs yet, or they cannot be written.
    """
    if not (folder / INDEX).exists():
        return None
    page = None
    with contextlib.suppress(OSError):
        for suite in suites:
            findings, page = evaluate([suite]), _page_of(folder, suite.name)
            if _results(folder, suite.name) != _results_of(findings):
                page.unlink(missing_ok=True)
            _note(folder, suite.name, findings)
    return page if page is not None and page.exists() else None


def is_page_due(folder: Path, suite: Suite) -> bool:
    """Whether a suite has no page, or one that is older than a day or has other results."""
    try:
        written = _page_of(folder, suite.name).stat().st_mtime
    except OSError:
        return True
    return time.time() - written > _DAY or _results(folder, suite.name) != _results_of(evaluate([suite]))


def _results(folder: Path, suite: str) -> list[tuple[str, bool]]:
    """The expectations of the suite's newest verdict, each with whether it was met; none if there is no verdict."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / f"{suite}.json").read_text(encoding="utf-8"))["findings"]
        return [(name, success) for name, _, success, _ in found]
    return []


def _results_of(findings: Sequence[Finding]) -> list[tuple[str, bool]]:
    return [(found.expectation, found.success) for found in findings]


def _note(folder: Path, suite: str, findings: Sequence[Finding]) -> None:
    """Record the verdict of a suite, and write the index again."""
    _replace(folder / f"{suite}.json", json.dumps(_summary(suite, findings)))
    _replace(folder / INDEX, _index(folder))


def _render(result: Any) -> str:
    """The page in HTML, rendered by Great Expectations."""
    # Great Expectations takes texts for HTML, and anyone who may write a rule or a row chooses some of them
    result = copy.deepcopy(result)
    for found in result.results:
        found.result = _escaped(found.result)
        found.expectation_config.description = _escaped(found.expectation_config.description)
    from great_expectations.render.renderer import ValidationResultsPageRenderer

    return str(_view().render(ValidationResultsPageRenderer(run_info_at_end=True).render(result)))


@lru_cache(maxsize=1)
def _view() -> Any:
    """What renders pages; one view for all of them, since each compiles its templates anew."""
    from great_expectations.render.view import DefaultJinjaPageView

    return DefaultJinjaPageView()


def _escaped(value: Any) -> Any:
    """The value with all texts in it escaped for HTML."""
    if isinstance(value, str):
        return html.escape(value)
    if isinstance(value, Mapping):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def stand_alone(page: str) -> str:
    """The page without scripts, styles and pictures of other hosts, with a small inline style instead."""
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
    """The index page: the verdict, then the newest result of every suite; failures first, then warnings."""
    summaries = []
    for path in folder.glob("*.json"):
        # a crash of the machine may leave a file without its content; the next verdict on its suite replaces it
        with contextlib.suppress(ValueError):
            summaries.append(json.loads(path.read_text(encoding="utf-8")))
    graded = sorted((_grade(summary), summary["suite"], summary) for summary in summaries)
    sections = "".join(_section(folder, summary) for _, _, summary in graded)
    head = f'<meta charset="utf-8"><title>deltatag: quality</title><style>{_STYLE}</style>'
    body = f"<h1>Quality of deltatag's tables</h1>{_verdict([grade for grade, _, _ in graded])}{sections}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


_FAILED, _WARNED, _PASSED = range(3)


def _grade(summary: Mapping[str, Any]) -> int:
    severities = {severity for _, severity, success, _ in summary["findings"] if not success}
    return _FAILED if ERROR in severities else _WARNED if severities else _PASSED


def _verdict(grades: Sequence[int]) -> str:
    failed, warned = grades.count(_FAILED), grades.count(_WARNED)
    kind = "failed" if failed else "warned" if warned else "passed"
    text = f"{failed} of {len(grades)} suites failed" if failed else f"All {len(grades)} suites passed"
    return f'<p class="{kind}">{text}{f", {warned} with warnings" if warned else ""}.</p>'


def _section(folder: Path, summary: Mapping[str, Any]) -> str:
    findings = sorted(summary["findings"], key=lambda found: (found[2], found[1] != ERROR))
    rows = "".join(_row(*finding) for finding in findings)
    name, at = html.escape(summary["suite"]), html.escape(summary["at"])
    page = _page_of(folder, summary["suite"])
    title = f'<a href="{html.escape(page.name)}">{name}</a>' if page.exists() else name
    met = sum(bool(success) for _, _, success, _ in findings)
    return (
        f"<h4>{title}</h4><p>{met} of {len(findings)} expectations met, judged at {at}</p><table><tr>"
        f"<th>Expectation</th><th>Result</th><th>Message</th></tr>{rows}</table>"
    )


def _row(name: str, severity: str, success: bool, message: str) -> str:
    kind, text = (
        ("passed", "passed") if success else ("failed", "FAILED") if severity == ERROR else ("warned", severity)
    )
    return f'<tr><td>{html.escape(name)}</td><td class="{kind}">{text}</td><td>{html.escape(message)}</td></tr>'


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
