"""Notices for people about a micro-batch of a join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MUCH = 0.5
"""Share of a side's earlier bytes above which reading them is reported."""


def notices(name: str, sides: Mapping[str, Any]) -> list[str]:
    """A sentence for each side of which a micro-batch read most of the earlier rows."""
    return [
        f"{name}: a micro-batch read {side['read_share']:.0%} of the earlier rows of {stream}, since their files have "
        "times and keys that new rows could join. Cluster the source by event time or key, or set a lateness."
        for stream, side in sides.items()
        if side["read_share"] > _MUCH and side["earlier_files"] > 1
    ]
