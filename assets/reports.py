"""The report of each stream and join as an asset: writes the page of `deltatag report`, and has it as metadata."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.failures import reporting_failures
from assets.names import RESOURCE, SPARK_POOL, index_key, report_key, table_key
from assets.page_links import page_link
from assets.table_metadata import rounded
from pipelines.pages import REPORT, page_folder
from pipelines.settings.model import Configuration
from pipelines.table_definitions import tagged_table

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

CRON = "40 5 * * *"
REPORT_JOB = "report"
_RULES_SHOWN = 50
_PAIRS_SHOWN = 25
_TEXT = 120
_BARS = "▁▂▃▄▅▆▇█"


def report_asset(scope: str, owners: Sequence[str]) -> dg.AssetsDefinition:
    """`report/<scope>_report`: the page of `deltatag report SCOPE`, with its plots and tables as metadata."""

    @dg.asset(
        key=report_key(scope),
        deps=[table_key(tagged_table(scope)), index_key(scope)],
        group_name=scope,
        description=f"The rules of {scope}: matches over time, which rules match the same rows, findings and edits.",
        owners=owners,
        required_resource_keys={RESOURCE},
        pool=SPARK_POOL,
    )
    def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        """Count, write the page, and return the metadata."""
        with reporting_failures():
            return dg.MaterializeResult(metadata=_metadata(context.resources.lake.workspace(), scope))

    return report


def report_job(configuration: Configuration) -> Any:
    """The job of the reports of all streams and joins."""
    keys = map(report_key, [*configuration.streams, *configuration.joins])
    return dg.define_asset_job(
        REPORT_JOB,
        selection=dg.AssetSelection.assets(*keys),
        description="Write the reports of all streams and joins.",
        executor_def=dg.in_process_executor,
    )


def report_schedule(configuration: Configuration, job: Any) -> dg.ScheduleDefinition:
    """The schedule that starts the job every morning."""
    return dg.ScheduleDefinition(
        name="report_every_morning",
        job=job,
        cron_schedule=CRON,
        execution_timezone=configuration.rules.time_zone,
        description="Counts the matches of every rule over time, and writes a page for each stream and join.",
    )


def _metadata(workspace: "Workspace", scope: str) -> dict[str, Any]:
    from assets.plots import matches_over_time
    from pipelines.errors import PipelineError
    from pipelines.report import write_page
    from pipelines.reporting.contents import contents

    found = contents(workspace, scope)
    notes: list[str] = list(found["notes"])
    shown: dict[str, Any] = {}
    try:
        page = write_page(found, page_folder(workspace.configuration, REPORT))
        shown["page"] = page_link(workspace.configuration, REPORT, page)
    except PipelineError as error:  # for example, if the configuration's folder is read-only
        notes.append(str(error))
    shown |= {
        "rules": found["all_rules"],
        "rows": found["rows"],
        "findings": found["all_findings"],
        "rejected": found["all_rejects"],
    }
    if found["rows"]:
        shown["matched_rate"] = rounded(found["matched"] / found["rows"])
    if notes:
        shown["notes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in notes))
    by_matches = sorted(found["rules"], key=lambda rule: -rule["matches"])
    if len(found["starts"]) > 1:
        picture = matches_over_time(scope, found["starts"], found["matched_over_time"], by_matches)
        shown["matches_over_time"] = dg.MetadataValue.md(picture)
    tables = {
        "rules_by_matches": _rules(found, by_matches[:_RULES_SHOWN]),
        "rules_that_match_together": _pairs(found["together"]),
        "edits": _edits(found["edits"]),
    }
    return shown | {name: dg.MetadataValue.md(table) for name, table in tables.items() if table}


def _rules(found: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            rule["id"] if rule["enabled"] else f"{rule['id']} (disabled)",
            f"{rule['matches']:,}",
            _percent(rule["matches"], found["rows"]),
            _trend(rule["over_time"]),
            f"{rule['errors']:,}",
            rule["owner"],
            _cut(rule["expression"]),
        )
        for rule in rules
    ]
    return _table(("rule", "matches", "share of rows", "over time", "raised", "owner", "expression"), rows)


def _pairs(together: Mapping[str, Any]) -> str:
    """The pairs of rules that overlap most: by the share of rows that both match among those that either matches."""
    ids, rows = together["ids"], together["rows"]
    found = []
    for one, other in combinations(range(len(rows)), 2):
        both, first, second = rows[one][other], rows[one][one], rows[other][other]
        if both:
            share = both / (first + second - both)
            found.append((share, (ids[one], ids[other], f"{both:,}", _percent(both, first), _percent(both, second))))
    found.sort(key=lambda each: -each[0])
    names = ("rule", "other rule", "rows of both", "of the rule's", "of the other's")
    return _table(names, [row for _, row in found[:_PAIRS_SHOWN]])


def _edits(edits: Sequence[Mapping[str, Any]]) -> str:
    names = ("version", "at", "operation", "user", "added", "removed", "changed")
    rows = [
        (*(edit[name] for name in names), _cut(", ".join(_edited(each) for each in edit["rules"]))) for edit in edits
    ]
    return _table((*names, "rules"), rows)


def _edited(rule: Mapping[str, Any]) -> str:
    return f"{ {'added': '+', 'removed': '-'}.get(rule['kind'], '') }{rule['rule_id']}"


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    from quality.findings import markdown_table

    return markdown_table(names, rows) if rows else ""


def _trend(counts: Sequence[int]) -> str:
    """The counts as a line of bars, whose heights are proportional to the counts."""
    most = max(counts, default=0)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] if most else _BARS[0] for count in counts)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
