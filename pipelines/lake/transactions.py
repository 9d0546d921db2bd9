"""The transactions by which a table knows which micro-batches it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

GIVEN_UP = 1 << 62
"""The transaction of a series of micro-batches that is given up; one more where the last of them was written."""


def application(series: str, name: str) -> str:
    """Whose transactions the micro-batches of a series are in the log of one table."""
    return f"deltatag/{series}/{name}"


def app_of(plan: Mapping[str, Any], name: str) -> str:
    """Whose transaction a planned micro-batch is in the log of one table: where an earlier plan of it has written the
    table, that plan's."""
    return application(plan.get("written", {}).get(name, plan["series"]), name)


def is_done(lake: Lake, name: str, app: str, number: int) -> bool:
    """True if the table holds this micro-batch of an application."""
    version = lake.delta(name).transaction_version(app)
    return version is not None and version >= number
