"""Sigma rules over columns: each equals an evaluation of the rule itself, and refusals name their part."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import rules_index as ri
from pipelines.authoring.sigma import read_sigma
from tests.sigma_oracle import matches

SCHEMA = pa.schema(
    {
        "Image": pa.string(),
        "CommandLine": pa.string(),
        "Parent Image": pa.string(),
        "Address": pa.string(),
        "ProcessId": pa.int64(),
        "Elevated": pa.bool_(),
        "Day": pa.date32(),
        "user": pa.struct({"name": pa.string()}),
    }
)
MAPPING = {"fields": {"ParentImage": "Parent Image", "User": "user.name"}}
TEXTS = [
    None, "", "a", "A", "C:\\Windows\\cmd.exe", "c:\\windows\\CMD.EXE", "100%", "100_", "1000", "a*b", "a?b", "axb",
    "\\", "\\\\", "\\*", "net.exe /add -user", "net.exe -add /USER", "net.exe \u2013add", "it's",
    'say "x"', "line\nend",
    "-enc JAB", "/enc -a", "\u2014enc \u2015a", "straße", "C:\\Temp\\a'b\\", "null", "*",
]  # fmt: skip
ADDRESSES = [
    None,
    "10.0.0.1",
    "10.255.1.2",
    "172.16.0.1",
    "172.31.255.255",
    "172.32.0.1",
    "192.168.1.7",
    "8.8.8.8",
    "10.0.0.256",
    "10.0.0.01",
    "10.0.0.1\n",
    "10.0.0",
    "10.0.0.0.1",
    "172.16.0.999",
    "x",
]
VALUES = [
    "a", "*.exe", "c:\\windows\\*", "\\cmd.exe", "\\\\*", "\\*", "a\\*b", "a\\?b", "a?b", "100%", "100_", "it's", "*",
    "", 'say "x"', "*\\a'b\\\\", "line*", "-enc*", "\\\\\\*", "?", "STRASSE", "straße",
]  # fmt: skip


def events(seed: int = 0, count: int = 300) -> list[dict[str, Any]]:
    """Events by Sigma's names of their fields."""
    draw = random.Random(seed)
    return [
        {
            "Image": draw.choice(TEXTS),
            "CommandLine": draw.choice(TEXTS),
            "ParentImage": draw.choice(TEXTS),
            "Address": draw.choice(ADDRESSES),
            "ProcessId": draw.choice([None, 0, 4, 4688]),
            "User": draw.choice(TEXTS),
        }
        for _ in range(count)
    ]


def table(found: list[dict[str, Any]]) -> pa.Table:
    names = {"ParentImage": "Parent Image"}
    rows = [
        {names.get(name, name): value for name, value in each.items() if name != "User"}
        | {"user": {"name": each["User"]}}
        for each in found
    ]
    return pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in rows], SCHEMA)


def write(folder: Path, *rules: dict[str, Any], mapping: dict[str, Any] | None = None) -> tuple[Path, Path]:
    (folder / "rules").mkdir(exist_ok=True)
    for number, rule in enumerate(rules):
        (folder / "rules" / f"{number:03}.yml").write_text(yaml.safe_dump(rule, allow_unicode=True))
    fields = folder / "fields.yml"
    fields.write_text(yaml.safe_dump(MAPPING if mapping is None else mapping))
    return folder / "rules", fields


def rule(detection: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"title": "t", "id": "x", "detection": detection} | more


def check(folder: Path, *detections: dict[str, Any], seed: int = 0) -> None:
    """Each detection matches the events that it is TRUE of, and none is left to Spark."""
    path, fields = write(folder, *(rule(each, id=f"{number:04}") for number, each in enumerate(detections)))
    found = read_sigma(path, "s", SCHEMA, fields)
    assert found.rejected == []
    asked = events(seed)
    compiled = ri.compile_rules([(row["rule_id"], row["expression"]) for row in found.rows], SCHEMA)
    assert compiled.rejects.num_rows == 0, compiled.rejects.to_pylist()
    assert not [leaf.text for leaf in compiled.derived]
    got = compiled.match(table(asked)).to_pylist()
    for number, detection in enumerate(detections):
        expected = [matches(json.loads(json.dumps(detection)), event) for event in asked]
        assert [f"{number:04}" in ids for ids in got] == expected, found.rows[number]["expression"]


@pytest.mark.slow
def test_every_modifier_with_every_value(tmp_path: Path) -> None:
    modifiers = ["", "|contains", "|startswith", "|endswith", "|cased", "|contains|cased", "|contains|windash"]
    detections = [
        {"s": {f"Image{modifier}": value}, "condition": text}
        for modifier, value, text in itertools.product(modifiers, VALUES, ("s", "not s"))
    ]
    check(tmp_path, *detections)


@pytest.mark.slow
def test_lists_numbers_nulls_networks_and_patterns(tmp_path: Path) -> None:
    searches: list[Any] = [
        {"Image|contains": ["a", "\\cmd"]},
        {"Image|contains|all": ["c:", "exe"]},
        {"CommandLine|contains|all|windash": ["-add", "-user"]},
        {"CommandLine|contains|windash": "-add -user"},
        {"CommandLine|windash": ["/enc -a", "x /add -user", "*-add*/user"]},
        {"CommandLine|windash|neq": "-enc /a"},
        {"Image": [None, "a"]},
        {"Image": None},
        {"Image": ["", "*"]},
        {"ProcessId": 4},
        {"ProcessId": [0, "4688"]},
        {"ProcessId|gte": 4},
        {"ProcessId|lt": 4},
        {"Address|cidr": "10.0.0.0/8"},
        {"Address|cidr": ["172.16.0.0/12", "192.168.1.7/32"]},
        {"Address|cidr": "0.0.0.0/0"},
        {"Address|cidr": "10.0.0.1"},
        {"Address|cidr": "10.0.0.0/30"},
        {"Address|cidr": "128.0.0.0/1"},
        {"Image|re": "^[a-c]:.*exe$"},
        {"Image|re|i": ["^c:", "^A$"]},
        {"Image|exists": "true"},
        {"Image|exists": "Yes"},
        {"Image|exists": "OFF"},
        {"Image|exists": "false", "User": "a"},
        {"Image|neq": "a"},
        {"User": "a", "ParentImage": "a*"},
        [{"User": "a"}, {"ParentImage|endswith": ".exe", "Image": "*"}],
    ]
    check(
        tmp_path, *({"s": each, "condition": text} for each in searches for text in ("s", "not s", "not not s")), seed=1
    )


@pytest.mark.slow
def test_conditions(tmp_path: Path) -> None:
    searches = {
        "selection_a": {"Image|endswith": "exe"},
        "selection_b": {"CommandLine|contains": ["add", "a"]},
        "filter_x": {"User": ["a", None]},
        "filter_y": {"ParentImage|startswith": "c:"},
        "_hidden": {"Image": "never"},
    }
    conditions = [
        "selection_a", "selection_a and not filter_x", "1 of selection_*", "all of selection*", "any of filter_*",
        "all of selection_* and not 1 of filter_*", "not (selection_a or filter_x)", "not all of filter_*",
        "selection_a or selection_b and filter_x", "(selection_a or selection_b) and filter_x", "1 of them",
        "all of them", "not 1 of them", "NOT selection_a AND (filter_x OR NOT filter_y)", "not not not filter_x",
        "selection_a and not (filter_x and not (filter_y or selection_b))", ["selection_a", "filter_y"],
    ]  # fmt: skip
    check(tmp_path, *(searches | {"condition": each} for each in conditions), seed=2)


@pytest.mark.slow
def test_random_rules(tmp_path: Path) -> None:
    draw = random.Random(5)
    fields = ["Image", "CommandLine", "ParentImage", "User"]

    def search() -> dict[str, Any]:
        found = {}
        for name in draw.sample(fields, draw.randint(1, 3)):
            modifier = draw.choice(["", "|contains", "|startswith", "|endswith", "|contains|all", "|neq"])
            found[name + modifier] = draw.sample(VALUES, draw.randint(1, 3))
        return found

    def condition(depth: int) -> str:
        kind = draw.randint(0, 4) if depth else 0
        if kind < 2:
            return draw.choice(["a", "b", "c", "1 of them", "all of them"])
        inner = [condition(depth - 1), condition(depth - 1)]
        return f"not ({inner[0]})" if kind == 2 else f"({inner[0]} {'and' if kind == 3 else 'or'} {inner[1]})"

    check(tmp_path, *({**{name: search() for name in "abc"}, "condition": condition(3)} for _ in range(60)), seed=3)


@pytest.mark.parametrize(
    ("detection", "error", "words"),
    [
        ({"s": ["word"], "condition": "s"}, "KEYWORDS", "keywords"),
        ({"s": {"|all": ["a", "b"]}, "condition": "s"}, "KEYWORDS", "keywords"),
        ({"s": {"Image|base64": "a"}, "condition": "s"}, "MODIFIER", "base64"),
        ({"s": {"Image|base64offset|contains": "a"}, "condition": "s"}, "MODIFIER", "base64offset"),
        ({"s": {"Image|wide": "a"}, "condition": "s"}, "MODIFIER", "wide"),
        ({"s": {"Image|expand": "%x%"}, "condition": "s"}, "MODIFIER", "expand"),
        ({"s": {"Image|odd": "a"}, "condition": "s"}, "MODIFIER", "odd of Image is not supported"),
        ({"s": {"Address|cidr": "2001:db8::/32"}, "condition": "s"}, "MODIFIER", "IPv4"),
        ({"s": {"Address|cidr": "::1/128"}, "condition": "not s"}, "MODIFIER", "IPv4"),
        ({"s": {"Address|cidr": ["10.0.0.0/8", "::1"]}, "condition": "s"}, "MODIFIER", "IPv4"),
        ({"s": {"Address|cidr": "10.1.2.3/8"}, "condition": "s"}, "VALUE", "the network 10.0.0.0/8; write that"),
        ({"s": {"CommandLine|windash": "-a -b -c -d -e"}, "condition": "s"}, "MODIFIER", "1,000 alternatives"),
        ({"s": {"CommandLine|windash": " -a" * 9_000}, "condition": "s"}, "MODIFIER", "more than 1,000 alternatives"),
        ({"s": {"ProcessId|fieldref|gt": "Other"}, "condition": "s"}, "MODIFIER", "fieldref and gt of ProcessId"),
        ({"s": {"Image|re|windash": "-a"}, "condition": "s"}, "MODIFIER", "re and windash of Image exclude"),
        ({"s": {"Image|gt|contains": 5}, "condition": "s"}, "MODIFIER", "gt and contains of Image exclude"),
        ({"s": {"Address|cidr|startswith": "10.0.0.0/8"}, "condition": "s"}, "MODIFIER", "cidr and startswith of"),
        ({"s": {"Image|fieldref|windash": "User"}, "condition": "s"}, "MODIFIER", "fieldref and windash of"),
        ({"s": {"Image|i": "a"}, "condition": "s"}, "MODIFIER", "i of Image is supported behind re alone"),
        ({"s": {"Image|exists": "maybe"}, "condition": "s"}, "VALUE", "'maybe'; give true or false"),
        ({"s": {"Image|exists": 1}, "condition": "s"}, "VALUE", "give true or false"),
        ({"s": {"Image|exists": None}, "condition": "s"}, "VALUE", "give true or false"),
        ({"s": {"Image|exists": ["true", "false"]}, "condition": "s"}, "VALUE", "give true or false"),
        ({"s": {}, "condition": "s"}, "VALUE", "search s is empty"),
        ({"s": [], "condition": "s"}, "VALUE", "search s is empty"),
        ({"s": None, "condition": "s"}, "VALUE", "search s is empty"),
        ({"s": [{"Image": "a"}, {}], "condition": "s"}, "VALUE", "search s is empty, or a part of it"),
        ({"s": [[{"Image": "a"}]], "condition": "s"}, "VALUE", "search s has a list within a list"),
        ({"s": {"Image": ["a", ["b"]]}, "condition": "s"}, "VALUE", "Image have a list within a list"),
        ({"s": [{"Image": "a"}, "word"], "condition": "s"}, "KEYWORDS", "keywords"),
        ({"s": {"Elevated": "4"}, "condition": "s"}, "VALUE", "Elevated is BOOLEAN here"),
        (
            {"s": {"Day": "2026-01-01"}, "condition": "s"},
            "VALUE",
            "Day is DATE here, and is compared with '2026-01-01'",
        ),
        ({"s": {"Image|re": "ab(?=x)"}, "condition": "s"}, "PATTERN", "position 2 of the pattern 'ab(?=x)'"),
        ({"s": {"Image|re|i": "abc["}, "condition": "s"}, "PATTERN", "position 3 of the pattern 'abc['"),
        ({"s": {"Image|re": ["a", None]}, "condition": "s"}, "VALUE", "Image has no value for its modifier re"),
        ({"s": {"ProcessId|fieldref": None}, "condition": "s"}, "VALUE", "no value for its modifier fieldref"),
        ({"s": {"Address|cidr": "10.0.0.0/33"}, "condition": "s"}, "VALUE", "not a network"),
        ({"s": {"Hostname": "a"}, "condition": "s"}, "UNMAPPED_FIELD", "Hostname is not a column"),
        ({"s": {"ProcessId": "4*"}, "condition": "s"}, "VALUE", "ProcessId is not a text"),
        ({"s": {"ProcessId": "four"}, "condition": "s"}, "VALUE", "not a number"),
        ({"s": {"Image": []}, "condition": "s"}, "VALUE", "empty list"),
        ({"s": {"Image": [{"a": 1}]}, "condition": "s"}, "VALUE", "not texts"),
        ({"s": {"Image": "a"}, "condition": "s | count() > 5"}, "AGGREGATION", "one row"),
        ({"s": {"Image": "a"}, "condition": "s", "timeframe": "5m"}, "AGGREGATION", "timeframe"),
        ({"s": {"Image": "a"}, "condition": "t"}, "CONDITION", "names t"),
        ({"s": {"Image": "a"}, "condition": "2 of s*"}, "CONDITION", "2 of s*"),
        ({"s": {"Image": "a"}, "condition": "1 of t*"}, "CONDITION", "t*"),
        ({"s": {"Image": "a"}, "condition": "s and"}, "CONDITION", "its end"),
        ({"s": {"Image": "a"}, "condition": "(s"}, "CONDITION", "cannot be read"),
        ({"s": {"Image": "a"}, "condition": "s s"}, "CONDITION", "at s"),
        ({"s": {"Image": "a"}, "condition": "(" * 60 + "s" + ")" * 60}, "CONDITION", "brackets"),
        ({"s": {"Image": "a"}}, "CONDITION", "no detection with a condition"),
        ({}, "CONDITION", "no detection"),
    ],
)
def test_refused_parts_are_named(tmp_path: Path, detection: dict[str, Any], error: str, words: str) -> None:
    path, fields = write(tmp_path, rule(detection))
    found = read_sigma(path, "s", SCHEMA, fields)
    assert found.rows == [] and [(each["rule_id"], each["error"]) for each in found.rejected] == [("x", error)]
    assert words in found.rejected[0]["message"]


def test_a_reference_to_another_field(tmp_path: Path) -> None:
    path, fields = write(
        tmp_path, rule({"s": {"Image|fieldref": "User"}, "condition": "s and not t", "t": {"User": "b"}})
    )
    (row,) = read_sigma(path, "s", SCHEMA, fields).rows
    assert row["expression"].startswith("lower(`Image`) = lower(`user`.`name`) AND (`user`.`name` IS NULL OR")
    assert ri.compile_rules([(1, row["expression"])], SCHEMA).rejects.num_rows == 0


@pytest.mark.parametrize("condition", ["s", "not s"])
@pytest.mark.parametrize("detection", [{"ProcessId|fieldref": "Image"}, {"Image|fieldref": "ProcessId"}])
def test_a_text_that_is_no_number_differs_from_each_number(
    tmp_path: Path, detection: dict[str, Any], condition: str
) -> None:
    path, fields = write(tmp_path, rule({"s": detection, "condition": condition}))
    (row,) = read_sigma(path, "s", SCHEMA, fields).rows
    compiled = ri.compile_rules([(1, row["expression"])], SCHEMA)
    pairs = [("cmd", 5), ("5", 5), ("6", 5), ("", 5), (None, 5), ("cmd", None), (None, None)]
    found = [compiled.match_one({"Image": text, "ProcessId": number}) == [1] for text, number in pairs]
    assert found == [(pair == ("5", 5)) == (condition == "s") for pair in pairs]


def test_a_truth_value_is_compared_with_a_text_as_a_text(tmp_path: Path) -> None:
    path, fields = write(tmp_path, rule({"s": {"Elevated|fieldref": "Image"}, "condition": "not s"}))
    (row,) = read_sigma(path, "s", SCHEMA, fields).rows
    compiled = ri.compile_rules([(1, row["expression"])], SCHEMA)
    pairs = [("True", True), ("x", True), ("false", True), (None, True), ("x", None)]
    assert [compiled.match_one({"Image": text, "Elevated": truth}) for text, truth in pairs] == [[], [1], [1], [1], [1]]
