"""The actions of commits, as lines of a Delta log (JSON)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any


def removals(adds: Sequence[Mapping[str, Any]], data_change: bool = True) -> list[str]:
    """The `remove` actions of files, given by their `add` actions."""
    shared = {"deletionTimestamp": _now(), "dataChange": data_change, "extendedFileMetadata": True}
    kept = ("path", "partitionValues", "size")
    return [json.dumps({"remove": {**shared, **{key: add[key] for key in kept}}}) for add in adds]


def transaction(app: str, version: int) -> str:
    """The `txn` action: the commit is transaction `version` of `app`."""
    return json.dumps({"txn": {"appId": app, "version": version, "lastUpdated": _now()}})


def append_metrics(entries: Sequence[str]) -> dict[str, str]:
    """The operation metrics of an append, named as Spark's writer names them."""
    adds = [json.loads(entry)["add"] for entry in entries]
    rows = sum(json.loads(add["stats"])["numRecords"] for add in adds)
    size = sum(add["size"] for add in adds)
    return {"numFiles": str(len(adds)), "numOutputRows": str(rows), "numOutputBytes": str(size)}


def commit_info(
    operation: str, parameters: Mapping[str, str], metrics: Mapping[str, str], is_blind_append: bool = False
) -> str:
    """The `commitInfo` action."""
    info = {
        "timestamp": _now(),
        "operation": operation,
        "operationParameters": dict(parameters),
        "isBlindAppend": is_blind_append,
        "operationMetrics": dict(metrics),
        "engineInfo": "deltatag",
        "txnId": str(uuid.uuid4()),
    }
    return json.dumps({"commitInfo": info})


def _now() -> int:
    return int(time.time() * 1000)
