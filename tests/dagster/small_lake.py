"""A small lake of flights for runs of Dagster without a JVM, and what such runs have told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from deltalake import write_deltalake

from assets.definitions import build_definitions
from assets.names import RESOURCE
from assets.resources import LakeResource
from pipelines.workspace import Workspace
from tests.lakes import make_tables, write_rules

LAKE = '[lake]\nroot = "lake"\nrunner = "local"\n'
FLIGHTS = """
[streams.flights]
source = "lake/flights"
key = ["flight_id"]
event_time = "at"
checks = { sane = "delay > -120" }
"""
RULES_OF_FLIGHTS = [("late", "flights", "delay > 60"), ("number", "flights", "CAST(code AS INT) > 50")]
"""The second one raises on every fourth row."""
HOUR = 3_600_000_000


def make_lake(folder: Path, configuration: str, rules: Sequence[tuple[Any, ...]]) -> Workspace:
    """A lake with these rules (rule_id, scope, expression and, if given, owner), whose sources have no row yet."""
    (folder / "deltatag.toml").write_text(LAKE + configuration)
    workspace = Workspace.open(folder / "deltatag.toml")
    make_tables(workspace)
    write_rules(workspace, rules)
    return workspace


def flights(numbers: Sequence[int]) -> pa.Table:
    """One flight an hour from 1970 on; every tenth has a delay that the check refuses."""
    columns = {
        "flight_id": pa.array(numbers, pa.int64()),
        "delay": pa.array([-500 if n % 10 == 9 else n % 100 for n in numbers], pa.int32()),
        "code": [str(n) if n % 4 else "none" for n in numbers],
        "at": pa.array([n * HOUR for n in numbers], pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns)


def append(workspace: Workspace, numbers: Sequence[int], stream: str = "flights") -> None:
    """Append flights to a stream's source."""
    write_deltalake(workspace.configuration.stream(stream).source, flights(numbers), mode="append")


def shown(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    """The metadata that the run gave to an asset."""
    (found,) = [
        event.step_materialization_data.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None and event.asset_key.to_user_string() == asset
    ]
    return {key: each.value for key, each in found.items()}


def tick(workspace: Workspace, instance: dg.DagsterInstance, cursor: str | None, name: str) -> Any:
    """What a sensor of the lake says when it is asked."""
    definitions = build_definitions(workspace.configuration.path)
    (sensor,) = (each for each in definitions.sensors or () if each.name == name)
    resources = {RESOURCE: LakeResource.over(workspace)}
    context = dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources, definitions=definitions)
    return sensor.evaluate_tick(context)
