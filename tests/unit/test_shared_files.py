"""An updated index keeps the full compile that it changes in the file that it was loaded from."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.compiling import update as update_module
from rules_index.index import shared_files
from rules_index.index.compiled import dumps
from tests.unit.index_files import require_refused, saved

RULES = [(f"r{number:04}", f"x >= {number} AND x < {number + 3}") for number in range(400)]
ROWS = pa.table({"x": pa.array([0, 5, 77, 399, 1000, None], pa.int64())})


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files, "SHARED_BYTES", 0)
    monkeypatch.setattr(update_module, "FEW_RULES", 0)


def matches(compiled: ri.CompiledRules) -> list[list[str]]:
    found: list[list[str]] = compiled.match(ROWS).to_pylist()
    return found


def test_edits_share_the_first_compile(tmp_path: Path) -> None:
    rules, first = dict(RULES), saved(ri.compile_rules(RULES, ROWS.schema), tmp_path)
    assert ri.load(first).base_file is None and ri.load(first).shared_files == []
    path = first
    for edit in ({"r0005": "x = 77"}, {"new": "x IS NULL"}, {"r0077": None, "r0005": None}, {"r0005": "x = 1000"}):
        path = saved(ri.load(path).update([*edit.items()]), tmp_path)
        rules = {name: text for name, text in {**rules, **edit}.items() if text is not None}
        compiled, full = ri.load(path), ri.compile_rules(rules.items(), ROWS.schema)
        assert path.stat().st_size < first.stat().st_size / 3
        assert compiled.base_file is not None and compiled.shared_files == [first.name]
        assert compiled.fingerprint == full.fingerprint and matches(compiled) == matches(full)
        assert compiled.explain({"x": 77}, "r0076").matched
        # bytes for elsewhere hold all
        assert matches(ri.loads(dumps(compiled))) == matches(full)


def test_an_edit_of_an_index_in_no_file_holds_all(tmp_path: Path) -> None:
    compiled = ri.compile_rules(RULES, ROWS.schema).update([("new", "x IS NULL")])
    assert compiled.base_file is None and ri.loads(saved(compiled, tmp_path).read_bytes()).shared_files == []
    # a file that is not named by its content may change: nothing refers to it
    compiled.save(tmp_path / "any.index")
    again = ri.load(tmp_path / "any.index").update([("newer", "x IS NULL")])
    assert again.base_file is None and matches(ri.load(saved(again, tmp_path))) == matches(again)
    # the base of a file that holds both layers can stay in it
    both = saved(compiled, tmp_path)
    later = saved(ri.load(both).update([("newer", "x IS NULL")]), tmp_path)
    assert ri.load(later).shared_files == [both.name] and matches(ri.load(later)) == matches(again)


def test_a_small_base_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = saved(ri.compile_rules(RULES, ROWS.schema), tmp_path)
    monkeypatch.setattr(shared_files, "SHARED_BYTES", first.stat().st_size + 1)
    assert ri.loads(saved(ri.load(first).update([("new", "x IS NULL")]), tmp_path).read_bytes()).shared_files == []


def test_an_index_without_the_file_of_its_base_is_refused(tmp_path: Path) -> None:
    first = saved(ri.compile_rules(RULES, ROWS.schema), tmp_path)
    second = saved(ri.load(first).update([("new", "x IS NULL")]), tmp_path)
    require_refused(second, first, ri.compile_rules(RULES[1:], ROWS.schema))


def test_a_reference_to_a_reference_is_refused(tmp_path: Path) -> None:
    from rules_index.index.artifact import Sections, pieces_of, read_header

    first = saved(ri.compile_rules(RULES, ROWS.schema), tmp_path)
    second = saved(ri.load(first).update([("new", "x IS NULL")]), tmp_path)
    third = saved(ri.load(second).update([("newer", "x IS NULL")]), tmp_path)
    data = third.read_bytes()
    header = read_header(memoryview(data))
    sections = Sections()
    sections.data(memoryview(data)[header.pop("_start") :])
    for name in (second.name, "../" + first.name, str(first), 7):
        header["base"] = {"file": name, "checksum": second.read_bytes()[16:48].hex()}
        third.write_bytes(b"".join(pieces_of(header, sections)))
        with pytest.raises(ri.ArtifactError):
            ri.load(third)
