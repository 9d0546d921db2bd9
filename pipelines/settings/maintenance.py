"""Reads `[lake] maintenance`: how deltatag's own tables are maintained."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.settings.model import Maintenance
from pipelines.settings.section import Section

_MODES = ("auto", "never")


def maintenance_of(section: Section) -> Maintenance:
    """The maintenance that `[lake]` configures: a mode alone, or a table with the mode and durations."""
    value = section.values.get("maintenance", _MODES[0])
    if not isinstance(value, Mapping):
        return Maintenance(automatic=section.choice("maintenance", _MODES) == "auto")
    table = section.section("maintenance")
    table.expect("mode", "versions", "runs", "quarantine")
    default = Maintenance()
    return Maintenance(
        automatic=table.choice("mode", _MODES) == "auto",
        versions=table.duration("versions") if "versions" in value else default.versions,
        runs=table.duration("runs") if "runs" in value else default.runs,
        quarantine=table.duration("quarantine") if "quarantine" in value else default.quarantine,
    )
