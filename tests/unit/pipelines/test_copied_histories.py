"""Random histories of a stream whose column chunks are copied: appends, edits of rules, runs, re-tags, kills at writes.

After each re-tag the tables are what the rules say of the rows, and at the end what a tag from the start makes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

import rules_index as ri
from pipelines.compile import compile_scopes
from pipelines.errors import RestartedError, TableError
from pipelines.lake import index_histories, runs
from pipelines.lake.folder_log import FolderLog
from pipelines.retag import retag
from pipelines.retagging import local_tables
from pipelines.run import OpenGates, run_due
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from rules_index.workers import copied_files
from rules_index.workers.parquet_columns import CompositeFile
from tests.cases import cases, quick_first
from tests.lakes import write_rules

START = datetime(2024, 3, 9, tzinfo=UTC)
SEEDS = range(cases(40, "DELTATAG_COPIED_HISTORIES"))
WRITES = (CompositeFile, "add"), (CompositeFile, "close"), (FolderLog, "_put")
"""What writes: parts of files, whole files, and commits."""


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(write: int) -> Iterator[list[Any]]:
    """End the process at a write, by its number; every second one is a death just behind it. The writes until then."""
    done: list[Any] = []

    def dying(place: Any, original: Any) -> Any:
        def written(*given: Any, **named: Any) -> Any:
            done.append(place)
            if len(done) > write // 2 and write % 2 == 0:
                raise Killed
            result = original(*given, **named)
            if len(done) > write // 2:
                raise Killed
            return result

        return written

    with pytest.MonkeyPatch.context() as patch:
        for place in WRITES:
            patch.setattr(*place, dying(place, getattr(*place)))
        yield done


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of each row group are copied, and no session starts."""

    def refuse(*_arguments: Any, **_named: Any) -> Any:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(copied_files, "_FEWEST_ROWS", 2)
    monkeypatch.setattr(Workspace, "spark", property(refuse))


def rows(draw: random.Random, start: int, stop: int, lacking: float) -> pa.Table:
    """Random rows. lacking: how often some have NULL in the key: these go to quarantine, and no column is copied."""
    numbers = range(start, stop)

    def some(kind: pa.DataType, *values: Any) -> pa.Array:
        kept = draw.sample(values, draw.randint(1, len(values)))
        return pa.array([draw.choice(kept) for _ in numbers], kind)

    return pa.table(
        {
            "id": some(pa.int64(), *range(8), *([None] if draw.random() < lacking else [])),
            "n": some(pa.int32(), None, *range(20)),
            "w": some(pa.string(), "x", "xy", None, "z", "", "y" * 90),
            "d": some(pa.float64(), None, float("nan"), -0.0, 1.5, float("inf"), *map(float, range(20))),
            "t": pa.array([None if n % 11 == 2 else START + timedelta(minutes=10 * n) for n in numbers], TIME),
            "day": some(pa.date32(), None, date(2024, 1, 1), date(2024, 5, 6), date(1, 1, 1)),
            "flag": some(pa.bool_(), None, True, False),
            "money": some(pa.decimal128(7, 2), None, Decimal("1.05"), Decimal("-7.25")),
            "place": some(
                pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), None, {"a": 1, "b": ["x", None]}
            ),
            "raw": some(pa.binary(), None, b"", b"\x00\xff"),
            "seq": pa.array(numbers, pa.int64()),
        }
    )


TIME = pa.timestamp("us", "UTC")


def random_rule(draw: random.Random) -> str:
    number = draw.randint(0, 20)
    return draw.choice(
        [
            *(
                f"n > {number}",
                f"n BETWEEN {number} AND 15 AND w = 'xy'",
                "n IS NULL",
                f"NOT (n = {number} OR w = 'x')",
            ),
            *(f"d >= {number}", "d = double('NaN')", f"seq BETWEEN {5 * number} AND {5 * number + 60}", "flag", "TRUE"),
            *("day > DATE'2024-02-02'", f"money > {number - 10}", "w LIKE 'x%'", "w = ''", f"n + seq > {7 * number}"),
            *("raw IS NULL AND place IS NOT NULL AND n > 3", f"n <=> d OR id = {number}", "FALSE"),
        ]
    )


def random_definition(draw: random.Random) -> dict[str, Any]:
    since = START + timedelta(hours=draw.randint(0, 40)) if draw.random() < 0.2 else None
    until = START + timedelta(hours=draw.randint(0, 60)) if draw.random() < 0.2 else None
    labels = {name: draw.choice(["low", "high"]) for name in draw.sample(["a", "b", "severity"], draw.randint(0, 2))}
    priority = draw.choice([None, 1, 2])
    return {
        "expression": random_rule(draw),
        "valid_from": since,
        "valid_to": until,
        "labels": labels,
        "priority": priority,
    }


class Stream:
    """A stream of random rows, and its rules."""

    def __init__(self, make: Any, draw: random.Random, settings: Mapping[str, Any] | None = None) -> None:
        """settings: of the stream; random ones by default."""
        self.draw, self.end, self.numbered = draw, 0, set[int]()
        self.lacking = 0.1 if settings is None else 0.0
        self.numbers = draw.random() < 0.3
        more: dict[str, Any] = draw.choice([{}, {}, {"partition_by": ["n"]}, {"cluster_by": ["seq"]}, {"key": []}])
        self.partitions = draw.choice([[], ["n"]]) if "partition_by" in more and settings is None else []
        policy: dict[str, Any] = draw.choice([{}, {"retag": "new_rules"}, {"retag": "always"}])
        if draw.random() < 0.3:
            policy = {"annotations": draw.sample(["first_rule_id", "labels", "severity"], draw.randint(1, 3))}
        policy |= {"max_bytes_per_batch": draw.choice(["1g", "30k"])}
        settings = {**more, **policy} if settings is None else settings
        stream = {"source": "lake/source", "key": ["id"], "event_time": "t", **settings}
        self.workspace: Workspace = make({"s": stream}, None, "bigint" if self.numbers else "string", spark=False)
        self.rules = {number: random_definition(draw) for number in range(draw.randint(1, 8))}

    def append(self) -> None:
        """Add files, of several row groups each."""
        source = self.workspace.configuration.streams["s"].source
        for _ in range(self.draw.randint(1, 2)):
            count = self.draw.randint(1, 120)
            properties = WriterProperties(max_row_group_size=self.draw.choice([16, 50, 1000]), compression="SNAPPY")
            table = rows(self.draw, self.end, self.end + count, self.lacking)
            write_deltalake(
                source, table, mode="append", writer_properties=properties, partition_by=self.partitions or None
            )
            self.end += count
            known = table.filter(table["id"].is_valid()) if self.workspace.configuration.streams["s"].key else table
            self.numbered |= set(known["seq"].to_pylist())

    def edit(self) -> None:
        """Remove, change and add rules."""
        draw = self.draw
        kept = {rule: random_definition(draw) if draw.random() < 0.2 else each for rule, each in self.rules.items()}
        self.rules = {rule: each for rule, each in kept.items() if draw.random() > 0.2}
        for _ in range(draw.randint(0, 2)):
            self.rules[draw.randint(0, 40)] = random_definition(draw)

    def compile(self) -> None:
        """Write the rules and compile them."""
        name = (lambda rule: rule) if self.numbers else "r{}".format
        listed = [{"rule_id": name(rule), "scope": "s", **each} for rule, each in self.rules.items()]
        write_rules(self.workspace, listed, "overwrite")
        assert not [result.error for result in compile_scopes(self.workspace) if result.error]

    def read(self, name: str) -> list[dict[str, Any]]:
        """A table's rows."""
        found: list[dict[str, Any]] = DeltaTable(self.workspace.lake.uri(name)).to_pyarrow_table().to_pylist()
        return found

    def check(self) -> None:
        """The tagged rows have the ids that the rules give them, and the matches are theirs."""
        table = DeltaTable(self.workspace.lake.uri("s_tagged")).to_pyarrow_table()
        ids = [rule if self.numbers else f"r{rule}" for rule in self.rules]
        bounds = {
            name: [each[name] for each in self.rules.values()] for name in ("expression", "valid_from", "valid_to")
        }
        rules = pa.table({"rule_id": pa.array(ids, pa.int64() if self.numbers else pa.string()), **bounds})
        for place, name in ((2, "valid_from"), (3, "valid_to")):
            rules = rules.set_column(place, name, rules[name].cast(TIME))
        compiled = ri.compile_rules(rules, table.schema, event_time="t", time_zone="UTC")
        assert not compiled.rejects.num_rows
        assert table["rule_ids"].to_pylist() == compiled.match(table).to_pylist()
        self.check_matches()

    def check_matches(self) -> None:
        """The matches are those that the tagged rows have."""
        if not self.workspace.configuration.streams["s"].key:
            return
        said = Counter((rule, row["id"], row["t"]) for row in self.read("s_tagged") for rule in row["rule_ids"])
        assert Counter((row["rule_id"], row["id"], row["t"]) for row in self.read("s_matches")) == said

    def rows(self) -> Counter[str]:
        """The tagged rows, as they would be at any time of tagging."""
        left_out = {"rules_version", "index_fingerprint", "source_version", "tagged_at"}
        return Counter(repr({k: v for k, v in row.items() if k not in left_out}) for row in self.read("s_tagged"))


@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize("seed", quick_first(1, SEEDS, 5))
def test_random_histories(new_workspace: Any, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(index_histories, "_WAIT", 0)  # whoever was killed goes on with nothing
    monkeypatch.setattr(local_tables, "_LARGE", draw.choice([0, 1 << 30]))
    monkeypatch.setattr(local_tables, "_MOST_KEPT", draw.choice([0, 2000, 1 << 28]))
    stream = Stream(new_workspace, draw)
    stream.append()
    stream.compile()
    for _ in range(draw.randint(3, 6)):
        if draw.random() < 0.6:
            stream.append()
        if draw.random() < 0.8:
            stream.edit()
            stream.compile()
        step = draw.choice(["tag", "retag", "retag", "run", "restart", "compact"])
        if stream.workspace.configuration.streams["s"].cluster_by and step == "compact":
            step = "run"  # delta-rs writes to no clustered table
        with killed_at(draw.randint(0, 40) if draw.random() < 0.4 else 1 << 30):
            try:
                if step == "run":
                    assert not run_due(stream.workspace, OpenGates()).failures
                elif step == "compact" and stream.workspace.lake.exists("s_tagged"):
                    DeltaTable(stream.workspace.lake.uri("s_tagged")).optimize.compact()
                elif step == "retag":
                    retag(stream.workspace, "s")
                else:
                    tag_stream(stream.workspace, "s", restart=step == "restart")
            except (Killed, RestartedError):
                step = "killed"
            except TableError as error:
                assert "is only partly written" in str(error)
                step = "killed"
        if step == "retag" and stream.workspace.lake.exists("s_tagged"):
            stream.check()
    tag_stream(stream.workspace, "s")
    retag(stream.workspace, "s")
    stream.check()
    assert sorted(row["seq"] for row in stream.read("s_tagged")) == sorted(stream.numbered)
    assert retag(stream.workspace, "s").rows_changed == 0
    assert {batch.state for batch in runs.batches(stream.workspace.lake)} == {"done"}
    found = stream.rows()
    tag_stream(stream.workspace, "s", restart=True)
    assert stream.rows() == found
    stream.check_matches()


VERBS: dict[str, Callable[[Workspace], Any]] = {
    "retag": lambda workspace: retag(workspace, "s"),
    "tag": lambda workspace: tag_stream(workspace, "s"),
    "restart": lambda workspace: tag_stream(workspace, "s", restart=True),
    "run": lambda workspace: run_due(workspace, OpenGates()),
}
KILLED = [(verb, write) for write in (*range(2, 40, 4), *range(0, 40, 4), *range(1, 40, 2)) for verb in VERBS]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize(("verb", "write"), quick_first(2, KILLED, 12))
def test_kills_while_columns_are_copied(new_workspace: Any, verb: str, write: int) -> None:
    """Killed at or just behind any write of a verb that copies columns, and started again, perhaps after an edit."""
    draw = random.Random(write)
    settings = {"annotations": ["labels"]} if write % 3 == 0 else {"retag": "always"}
    stream = Stream(new_workspace, draw, settings)
    stream.append()
    stream.compile()
    tag_stream(stream.workspace, "s")
    stream.append()
    if verb == "retag":
        tag_stream(stream.workspace, "s")
        stream.rules[50] = {**random_definition(draw), "expression": "seq % 2 = 0 AND id > 2", "valid_from": None}
        stream.compile()
    with killed_at(write) as writes, suppress(Killed):
        VERBS[verb](stream.workspace)
        assert WRITES[0] in writes and len(writes) <= write // 2  # it died at no write, so that it did all
    if draw.random() < 0.5:
        stream.edit()
        stream.compile()
    tag_stream(stream.workspace, "s")
    retag(stream.workspace, "s")
    stream.check()
    assert sorted(row["seq"] for row in stream.read("s_tagged")) == sorted(stream.numbered)
    assert {batch.state for batch in runs.batches(stream.workspace.lake)} == {"done"}
