"""Counts over the lake's tables that the demonstration shows, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.table_definitions import RULES, matches_table, tagged_table

if TYPE_CHECKING:
    import polars as pl

    from pipelines.workspace import Workspace


def table_of(workspace: Workspace, name: str) -> pl.LazyFrame:
    """A table of the lake as a LazyFrame."""
    import polars as pl

    return pl.scan_delta(workspace.lake.uri(name))


def matches_by_rule(workspace: Workspace, stream: str) -> pl.DataFrame:
    """For each rule of the stream: rule_id, matches, percent of the tagged rows, expression; most matches first."""
    import polars as pl

    rules = table_of(workspace, RULES.name).filter(pl.col("scope") == stream)
    rows = table_of(workspace, tagged_table(stream)).select(pl.len()).collect().item()
    counts = table_of(workspace, matches_table(stream)).group_by("rule_id").agg(matches=pl.len())
    return (
        rules.join(counts, on="rule_id", how="left")
        .select(
            "rule_id",
            pl.col("matches").fill_null(0),
            (100 * pl.col("matches").fill_null(0) / rows).round(2).alias("percent"),
            "expression",
        )
        .sort("matches", "rule_id", descending=[True, False])
        .collect()
    )


def rows_by_version(workspace: Workspace, stream: str) -> list[tuple[int, int]]:
    """How many rows each version of the rules has tagged, ascending by version."""
    tagged = table_of(workspace, tagged_table(stream))
    counted = tagged.group_by("rules_version").len().sort("rules_version").collect()
    return [(version, rows) for version, rows in counted.iter_rows()]


def matches_by_version(workspace: Workspace, stream: str) -> dict[tuple[str, int], int]:
    """How many rows each rule matched under each version of the rules."""
    counted = table_of(workspace, matches_table(stream)).group_by("rule_id", "rules_version").len().collect()
    return {(rule_id, version): matches for rule_id, version, matches in counted.iter_rows()}


def pairs_and_flights(workspace: Workspace, join: str) -> tuple[int, int]:
    """How many joined rows there are, and how many flights are in them."""
    import polars as pl

    flight = pl.col("flights").struct.field("flight_id")
    found = table_of(workspace, tagged_table(join)).select(pl.len(), flight.n_unique()).collect()
    return (int(found.item(0, 0)), int(found.item(0, 1)))


def pairs_by_rule(workspace: Workspace, join: str) -> pl.DataFrame:
    """For each rule of the join: rule_id, pairs, flights, delayed_percent, expression; most flights first."""
    import polars as pl

    flight = pl.col("flights").struct
    delayed = flight.field("departed_at").is_null() | (flight.field("dep_delay") >= 15)
    counts = (
        table_of(workspace, tagged_table(join))
        .select("rule_ids", flight.field("flight_id"), delayed=delayed)
        .explode("rule_ids")
        .group_by(rule_id="rule_ids")
        .agg(pairs=pl.len(), flights=pl.col("flight_id").n_unique(), delayed_percent=(100 * pl.col("delayed").mean()))
    )
    rules = table_of(workspace, RULES.name).filter(pl.col("scope") == join)
    return (
        rules.join(counts, on="rule_id", how="left")
        .select(
            "rule_id",
            pl.col("pairs", "flights").fill_null(0),
            pl.col("delayed_percent").round(1),
            "expression",
        )
        .sort("flights", "rule_id", descending=[True, False])
        .collect()
    )
