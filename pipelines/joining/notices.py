"""Notices for people about a micro-batch of a join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MUCH = 0.5
"""Share of a side's earlier bytes above which reading them is reported."""
_FEW_BYTES = 64 << 20
"""Bytes of earlier files below which nothing is reported: they are read in about a second."""


def notices(name: str, plan: Mapping[str, Any]) -> list[str]:
    """A sentence for each stream of which the micro-batch of a plan read most of the earlier rows. name: the join's."""
    cure = "Cluster the source by event time or key" + ("." if plan.get("lateness") else ", or set a lateness.")
    return [
        f"{name}: the last micro-batch read {side['read_share']:.0%} of the earlier rows of {stream}, since their "
        f"files have times and keys that new rows could join. {cure}"
        for stream, side in plan.get("sides", {}).items()
        if side["read_share"] > _MUCH
        and side["earlier_files"] > 1
        and side.get("earlier_bytes", _FEW_BYTES) >= _FEW_BYTES
    ]
