"""Edits of a list's Delta table: compiling reads what has changed, and gives what reading the list as a whole gives."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, TableFeatures, write_deltalake

import rules_index as ri
from pipelines import list_changes, value_lists
from pipelines.compile import compile_scopes
from pipelines.compiling import changes
from pipelines.errors import IndexDamagedError, TableError
from pipelines.lake.index_histories import ALL, NEW_RULES
from pipelines.lake.index_store import fetch_index, newest_index
from pipelines.maintain import maintain
from pipelines.retag import retag
from pipelines.scratch import indexes_folder
from pipelines.tag import tag_stream
from rules_index.compiling import update
from rules_index.index import shared_files
from tests.cases import cases

FEED = {"delta.enableChangeDataFeed": "true"}


class Reads:
    """How often lists were read as a whole, and the rows that were read for changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.whole, self.rows = 0, 0
        read, values = value_lists._read, list_changes._values

        def read_whole(*arguments: Any) -> Any:
            self.whole += 1
            return read(*arguments)

        def read_files(*arguments: Any) -> Any:
            found = values(*arguments)
            self.rows += len(found)
            return found

        monkeypatch.setattr(value_lists, "_read", read_whole)
        monkeypatch.setattr(list_changes, "_values", read_files)

    def taken(self) -> tuple[int, int]:
        """Both counts, which then begin anew."""
        found = self.whole, self.rows
        self.whole, self.rows = 0, 0
        return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Short lists are taken for long ones."""
    monkeypatch.setattr(value_lists, "LEAST_EDITED", 0)
    monkeypatch.setattr(shared_files, "SHARED_BYTES", 0)
    return Reads(monkeypatch)


@pytest.fixture
def lake(tmp_path: Path, new_workspace: Any, add_rules: Any) -> Any:
    source = str(tmp_path / "source")
    write_deltalake(source, pa.table({"account": [*map(str, range(60)), None], "pk": range(61)}))
    lists = {"bad": {"source": str(tmp_path / "list"), "column": "v"}}
    workspace = new_workspace({"s": {"source": source, "key": ["pk"]}}, spark=False, lists=lists)
    add_rules(workspace, ("in", "s", "account IN LIST('bad')"), ("out", "s", "account NOT IN LIST('bad')"))
    return workspace


def put(path: Path, values: list[Any], **options: Any) -> None:
    table = pa.table({"v": pa.array(values, pa.string()), "part": pa.array([len(values) % 3] * len(values))})
    write_deltalake(str(path / "list"), table, mode=options.pop("mode", "append"), **options)


def agrees(lake: Any, path: Path) -> None:
    """Whether the newest index is that of a compile from scratch, and matches as the table says."""
    stored = newest_index(lake.lake, "s")
    assert stored is not None
    compiled = ri.load(fetch_index(lake.lake, stored))
    read = QueryBuilder().register("list", DeltaTable(str(path / "list"))).execute("SELECT v FROM list").read_all()
    values = pa.table(read).column(0).cast(pa.string())
    rules = lake.lake.arrow("rules").select(["rule_id", "expression"])
    schema = pa.schema([("account", pa.string()), ("pk", pa.int64())])
    whole = ri.compile_rules(rules, schema, lists=[ri.value_list("bad", values)])
    assert compiled.fingerprint == whole.fingerprint
    accounts = [*map(str, range(60)), None]
    members = set(values.to_pylist())
    expected = [[] if each is None else ["in"] if each in members else ["out"] for each in accounts]
    assert compiled.match(pa.table({"account": accounts, "pk": range(61)})).to_pylist() == expected


def edit(made: random.Random, path: Path) -> None:
    """One edit of the list's table."""
    uri = str(path / "list")
    table = DeltaTable(uri)
    some = ", ".join(f"'{made.randrange(60)}'" for _ in range(3))
    kind = made.randrange(8)
    if kind <= 2:
        put(path, [made.choice([None, *map(str, range(60))]) for _ in range(made.randint(1, 4))])
    elif kind == 3:
        table.delete(f"v IN ({some})")
    elif kind == 4:
        table.update(predicate=f"v IN ({some})", updates={"v": f"'{made.randrange(60)}'"})
    elif kind == 5:
        come = pa.table({"v": [str(made.randrange(60)) for _ in range(3)]}).group_by("v").aggregate([])
        merge = table.merge(come, "t.v = s.v", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete() if made.random() < 0.5 else merge
        merge.when_not_matched_insert({"v": "s.v", "part": "1"}).execute()
    elif kind == 6:
        table.optimize.compact()
    else:
        table.restore(max(0, table.version() - made.randint(1, 3))) if table.version() else table.delete("v = '7'")


def test_a_list_of_an_index_without_a_digest_of_its_files_is_read_as_a_whole(
    lake: Any, tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier version of deltatag stored it."""
    put(tmp_path, ["1", "2", "3"])
    with monkeypatch.context() as patch:
        patch.setattr(value_lists, "_stamp", lambda table, column: json.dumps([str(table.metadata().id), 0, column]))
        compile_scopes(lake)
    put(tmp_path, ["4"])
    reads.taken()
    assert compile_scopes(lake)[0].state == "compiled" and reads.taken() == (1, 0)
    agrees(lake, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize("seed", range(cases(16)))
def test_edits_give_the_index_of_a_compile_from_scratch(
    seed: int, layered: bool, lake: Any, tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = random.Random(seed)
    if layered:
        # as with many rules: only what has changed is compiled, and laid over the index
        monkeypatch.setattr(changes, "LEAST_RULES", 0)
        monkeypatch.setattr(update, "FEW_RULES", 0)
        monkeypatch.setattr(update, "FOLDED_SHARE", 10.0)
    values = [made.choice([None, *map(str, range(60))]) for _ in range(40)]
    put(tmp_path, values, configuration=FEED if seed % 2 else None, partition_by=["part"] if seed % 3 == 0 else None)
    compile_scopes(lake)
    agrees(lake, tmp_path)
    assert reads.taken()[0] == 1
    overlaid = 0
    for _ in range(8):
        for _ in range(made.randint(1, 2)):
            edit(made, tmp_path)
        (result,) = compile_scopes(lake)
        assert result.state in ("compiled", "unchanged")
        agrees(lake, tmp_path)
        stored = newest_index(lake.lake, "s")
        overlaid += stored is not None and "base_rules" in stored.statistics
    assert reads.taken()[0] == 0 and (overlaid > 0) == layered


@pytest.mark.slow
@pytest.mark.parametrize("feed", [False, True])
def test_an_edit_reads_what_it_changes(feed: bool, lake: Any, tmp_path: Path, reads: Reads) -> None:
    for first in range(0, 400, 100):
        put(tmp_path, [str(each) for each in range(first, first + 100)], configuration=FEED if feed else None)
    compile_scopes(lake)
    assert reads.taken() == (1, 0)
    put(tmp_path, ["new", "newer"])
    DeltaTable(str(tmp_path / "list")).delete("v IN ('7', '8')")
    compile_scopes(lake)
    # of four files one was written anew, and one has come
    assert reads.taken() == (0, 0 if feed else 100 + 98 + 2)
    agrees(lake, tmp_path)
    stored = newest_index(lake.lake, "s")
    assert stored is not None and len(stored.shared_files) == 1
    # an edit that changes no value is known by the next one
    put(tmp_path, ["9"])
    assert compile_scopes(lake)[0].state == "unchanged"
    DeltaTable(str(tmp_path / "list")).delete("v = '10'")
    compile_scopes(lake)
    assert reads.taken()[0] == 0
    agrees(lake, tmp_path)
    assert set(tags(lake)) == set(range(61))


def tags(lake: Any) -> dict[int, list[str]]:
    tag_stream(lake, "s")
    table = DeltaTable(lake.lake.uri("s_tagged")).to_pyarrow_table()
    return dict(zip(table["pk"].to_pylist(), table["rule_ids"].to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("feed", [False, True])
def test_where_changes_cannot_be_told_the_list_is_read(feed: bool, lake: Any, tmp_path: Path, reads: Reads) -> None:
    options: dict[str, Any] = {"configuration": FEED if feed else None}
    uri = str(tmp_path / "list")
    put(tmp_path, [str(each) for each in range(30)], **options)
    compile_scopes(lake)
    assert reads.taken()[0] == 1
    # the files of the version that was compiled are gone, those of the feed too
    DeltaTable(uri).delete("v = '3'")
    for folder in ("", "_change_data/"):
        used = set(DeltaTable(uri).file_uris())
        for file in Path(uri).glob(f"{folder}*.parquet"):
            if str(file) not in used and file.name not in {Path(each).name for each in used}:
                file.unlink()
    compile_scopes(lake)
    agrees(lake, tmp_path)
    assert reads.taken()[0] == 1
    # another table is in its place, of as many versions
    for file in sorted(Path(uri).rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    put(tmp_path, ["1"], **options)
    put(tmp_path, ["2"])
    compile_scopes(lake)
    agrees(lake, tmp_path)
    assert reads.taken()[0] == 1
    # the log is gone
    put(tmp_path, ["4"])
    DeltaTable(uri).create_checkpoint()
    for version in (0, 1):
        (Path(uri) / "_delta_log" / f"{version:020}.json").unlink()
    compile_scopes(lake)
    agrees(lake, tmp_path)
    assert reads.taken()[0] <= 1


def test_a_list_with_deletion_vectors_is_read(lake: Any, tmp_path: Path, reads: Reads) -> None:
    put(tmp_path, ["1", "2"], configuration=FEED)
    compile_scopes(lake)
    table = DeltaTable(str(tmp_path / "list"))
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    compile_scopes(lake)
    agrees(lake, tmp_path)
    assert reads.taken() == (2, 0)


def test_a_list_that_an_older_copy_has_replaced_is_read(lake: Any, tmp_path: Path, reads: Reads) -> None:
    """The number of the version that was compiled is now that of another one, with as many rows."""
    put(tmp_path, ["1", "2"])
    shutil.copytree(tmp_path / "list", tmp_path / "copy")
    put(tmp_path, ["3"])
    compile_scopes(lake)
    shutil.rmtree(tmp_path / "list")
    shutil.move(tmp_path / "copy", tmp_path / "list")
    put(tmp_path, ["4"])
    put(tmp_path, ["5"])
    reads.taken()
    compile_scopes(lake)
    agrees(lake, tmp_path)
    assert reads.taken()[0] == 1


@pytest.mark.slow
def test_a_list_of_another_type_is_read(lake: Any, tmp_path: Path, reads: Reads) -> None:
    put(tmp_path, ["1", "2"])
    compile_scopes(lake)
    write_deltalake(str(tmp_path / "list"), pa.table({"v": [1, 2]}), mode="overwrite", schema_mode="overwrite")
    assert compile_scopes(lake)[0].rejects == 2
    put(tmp_path, ["1", "3"], mode="overwrite", schema_mode="overwrite")
    assert compile_scopes(lake)[0].rejects == 0
    agrees(lake, tmp_path)


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.slow
def test_a_damaged_file_of_a_list_is_fetched_again_and_a_lost_one_is_told(
    lake: Any, tmp_path: Path, reads: Reads
) -> None:
    put(tmp_path, [str(each) for each in range(30)])
    compile_scopes(lake)
    put(tmp_path, ["40"])
    compile_scopes(lake)
    stored = newest_index(lake.lake, "s")
    assert stored is not None
    (name,) = stored.shared_files
    for change in (damaged, Path.unlink):
        change(indexes_folder() / name)
        agrees(lake, tmp_path)
    lake.lake.delta("rule_index").delete(f"sha256 = '{name.removesuffix('.index')}'")
    assert ri.load(fetch_index(lake.lake, stored))
    (indexes_folder() / name).unlink()
    with pytest.raises(IndexDamagedError, match="compile s --force"):
        fetch_index(lake.lake, stored)
    # the next version of the list is read as a whole
    reads.taken()
    put(tmp_path, ["41"])
    assert compile_scopes(lake)[0].state == "compiled"
    assert reads.taken()[0] == 1
    agrees(lake, tmp_path)


@pytest.mark.slow
def test_upkeep_keeps_what_holds_a_list(lake: Any, tmp_path: Path, reads: Reads) -> None:
    put(tmp_path, [str(each) for each in range(30)])
    for value in ("40", "41", "42"):
        compile_scopes(lake)
        put(tmp_path, [value])
    compile_scopes(lake)
    stored = newest_index(lake.lake, "s")
    assert stored is not None
    object.__setattr__(lake.lake.settings.maintenance, "versions", 0)
    maintain(lake)
    left = pl.DataFrame(pl.from_arrow(lake.lake.arrow("rule_index", ["sha256", "statistics"])))
    assert set(left["sha256"]) == {stored.sha256, stored.shared_files[0].removesuffix(".index")}
    assert [json.loads(each)["list_files"] for each in left["statistics"]].count([]) == 1
    (indexes_folder() / stored.shared_files[0]).unlink()
    agrees(lake, tmp_path)
    compile_scopes(lake, force=True)
    again = newest_index(lake.lake, "s")
    assert again is not None and (again.shared_files, again.fingerprint) == ([], stored.fingerprint)
    assert len(lake.lake.arrow("rule_index", ["sha256"])) == 1


@pytest.mark.slow
def test_rows_that_match_by_an_edited_list_are_found(
    tmp_path: Path, new_workspace: Any, add_rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matched rows alone are stored: which ones those are is known by the list that the index that tagged them has."""
    source = str(tmp_path / "source")
    write_deltalake(source, pa.table({"account": [*map(str, range(20)), None], "pk": range(21)}))
    lists = {"bad": {"source": str(tmp_path / "list"), "column": "v"}}
    stream = {"source": source, "key": ["pk"], "output": "matched"}
    lake = new_workspace({"s": stream}, spark=False, runner="local", lists=lists)

    def retagged(values: list[str], mode: str = ALL) -> dict[int, list[str]]:
        put(tmp_path, values, mode="overwrite")
        compile_scopes(lake)
        retag(lake, "s", mode=mode)
        return tags(lake)

    add_rules(lake, ("in", "s", "account IN LIST('bad')"), ("last", "s", "pk >= 19"))
    # a text that reads like a list
    add_rules(lake, ("text", "s", """account = 'LIST("other")' """))
    put(tmp_path, ["1", "2"])
    compile_scopes(lake)
    assert tags(lake) == {1: ["in"], 2: ["in"], 19: ["last"], 20: ["last"]}
    assert retagged(["2", "3", "19"]) == {2: ["in"], 3: ["in"], 19: ["in", "last"], 20: ["last"]}
    # each of two micro-batches by other values
    write_deltalake(source, pa.table({"account": ["3", "4"], "pk": [30, 31]}), mode="append")
    put(tmp_path, ["4"], mode="overwrite")
    compile_scopes(lake)
    assert tags(lake)[31] == ["in", "last"]
    assert retagged(["3"]) == {3: ["in"], 19: ["last"], 20: ["last"], 30: ["in", "last"], 31: ["last"]}
    # two rules by other values, the second one from when it was added
    add_rules(lake, ("out", "s", "account NOT IN LIST('bad') AND pk < 3"))
    assert retagged(["4"], NEW_RULES)[0] == ["out"]
    assert retagged(["5"]) == {
        0: ["out"],
        1: ["out"],
        2: ["out"],
        5: ["in"],
        19: ["last"],
        20: ["last"],
        30: ["last"],
        31: ["last"],
    }
    lake.lake.delta("rule_index").delete()
    with pytest.raises(TableError, match="tag s --restart"):
        retagged(["6"])
