"""Decision trees over real network connections: each path is a rule, and each row must get the leaf it falls into."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from deltalake import write_deltalake
from sklearn.tree import DecisionTreeClassifier

from pipelines.compile import compile_scopes
from pipelines.tag import tag_stream
from tests.cases import SOAK

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

pytestmark = [pytest.mark.data, pytest.mark.timeout(900)]

TEXTS = ("protocol_type", "service", "flag")
EXACT = 1 << 24
"""Integers below it are the same as FLOAT, which is how scikit-learn sees every number."""


@dataclass(frozen=True)
class Feature:
    """One column of a tree's matrix: its values, and the SQL that is TRUE where they are at most a threshold."""

    values: np.ndarray
    at_most: Callable[[float], str]
    above: Callable[[float], str]


@pytest.fixture(scope="module")
def connections(data_folder: Path) -> pl.DataFrame:
    """Both tables, one below the other, with a row_id; 70 % of the rows are exact duplicates. `make soak` has all rows,
    `make test` every second one."""
    names = ("kdd99_10pct", "kdd99_test_corrected")
    both = pl.concat([pl.read_parquet(data_folder / "kdd99" / f"{name}.parquet") for name in names])
    both = both if SOAK else both.gather_every(2)
    return both.with_row_index("row_id").with_columns(pl.col("row_id").cast(pl.Int64))


def number(frame: pl.DataFrame, name: str, cast: bool) -> Feature:
    """A numeric column, as it is or, as the tree sees it, CAST to FLOAT."""
    values = frame[name].to_numpy()
    if frame[name].dtype.is_integer() and np.abs(values).max() < EXACT and not cast:
        return Feature(values, lambda t: f"{name} <= {int(np.floor(t))}", lambda t: f"{name} > {int(np.floor(t))}")
    column = f"CAST({name} AS FLOAT)" if cast or frame[name].dtype.is_integer() else name
    return Feature(values, lambda t: f"{column} <= {t!r}D", lambda t: f"{column} > {t!r}D")


def ordinal(frame: pl.DataFrame, name: str) -> Feature:
    """A text column as its place in the order of all values; few values are listed, many compared with the last."""
    words = sorted(frame[name].unique(), key=lambda word: word.encode())
    codes = np.searchsorted(np.array(words), frame[name].to_numpy())

    def condition(threshold: float, below: bool) -> str:
        place = int(np.floor(threshold))
        if place < 4:
            listed = ", ".join(f"'{word}'" for word in words[: place + 1])
            return f"{name} {'' if below else 'NOT '}IN ({listed})"
        return f"{name} {'<=' if below else '>'} '{words[place]}'"

    return Feature(codes, lambda t: condition(t, True), lambda t: condition(t, False))


def one_hot(frame: pl.DataFrame, name: str) -> Iterator[Feature]:
    """A text column as one feature for each of its values."""
    for word in sorted(frame[name].unique()):
        is_word = (frame[name] == word).to_numpy()
        yield Feature(is_word, lambda t, w=word: f"{name} <> '{w}'", lambda t, w=word: f"{name} = '{w}'")


def features(frame: pl.DataFrame, cast: bool, hot: bool) -> list[Feature]:
    numbers = [number(frame, name, cast) for name in frame.columns if name not in (*TEXTS, "row_id", "label")]
    texts = [list(one_hot(frame, name)) if hot else [ordinal(frame, name)] for name in TEXTS]
    return [*numbers, *itertools.chain.from_iterable(texts)]


def paths(tree: Any, columns: list[Feature]) -> Iterator[tuple[int, str]]:
    """Every leaf with the conditions on the way to it."""
    waiting: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    while waiting:
        node, conditions = waiting.pop()
        left, right = tree.children_left[node], tree.children_right[node]
        if left == right:
            yield node, " AND ".join(conditions)
            continue
        feature, threshold = columns[tree.feature[node]], float(tree.threshold[node])
        waiting.append((left, (*conditions, feature.at_most(threshold))))
        waiting.append((right, (*conditions, feature.above(threshold))))


TREES = {
    "plain": {"cast": False, "hot": True, "splitter": "best"},
    "exact": {"cast": True, "hot": False, "splitter": "best"},
    "random": {"cast": True, "hot": False, "splitter": "random"},
}


@pytest.fixture(scope="module")
def trees(connections: pl.DataFrame) -> tuple[list[tuple[str, str]], list[np.ndarray]]:
    """The rules (id, expression) of all trees, and per tree the leaf [rows] of every row."""
    learnt = connections.drop("row_id").with_row_index("place").unique(connections.columns[1:], maintain_order=True)
    chosen = learnt["place"].to_numpy()
    rules, leaves = [], []
    for name, kind in TREES.items():
        columns = features(connections, kind["cast"], kind["hot"])
        matrix = np.stack([feature.values.astype(np.float32) for feature in columns], axis=1)
        tree = DecisionTreeClassifier(splitter=kind["splitter"], max_leaf_nodes=800, random_state=7)
        tree.fit(matrix[chosen], connections["label"].to_numpy()[chosen])
        leaves.append(tree.apply(matrix))
        rules += [(f"{name}_{leaf:05d}", text) for leaf, text in paths(tree.tree_, columns)]
    return rules, leaves


@pytest.mark.parametrize("runner", ["local", pytest.param("spark", marks=pytest.mark.soak)])
def test_every_row_gets_the_leaves_of_the_trees(
    connections: pl.DataFrame,
    trees: tuple[list[tuple[str, str]], list[np.ndarray]],
    new_workspace: Callable[..., Workspace],
    add_rules: Callable[..., None],
    runner: str,
) -> None:
    rules, leaves = trees
    workspace = new_workspace({"connections": {"source": "lake/connections"}}, runner=runner, spark=runner == "spark")
    write_deltalake(workspace.configuration.streams["connections"].source, connections.to_arrow())
    add_rules(workspace, *((rule_id, "connections", text) for rule_id, text in rules))
    (compiled,) = compile_scopes(workspace)
    assert (compiled.error, compiled.rejects, compiled.rules) == (None, 0, len(rules))
    result = tag_stream(workspace, "connections")
    assert (result.rows, result.matches, result.errors) == (connections.height, len(TREES) * connections.height, {})
    tagged = workspace.lake.arrow("connections_tagged", ["row_id", "rule_ids"])
    found = pl.DataFrame(pl.from_arrow(tagged)).sort("row_id")
    assert found["row_id"].to_list() == list(range(connections.height))
    assert (found["rule_ids"].list.len() == len(TREES)).all()
    given = np.stack(found["rule_ids"].explode().to_numpy().reshape(-1, len(TREES)), axis=0)
    expected = np.stack(
        [np.char.add(f"{name}_", np.char.zfill(leaf.astype(str), 5)) for name, leaf in zip(TREES, leaves, strict=True)],
        axis=1,
    )
    expected.sort(axis=1)
    differing = np.flatnonzero((given.astype(str) != expected).any(axis=1))
    assert [(int(row), given[row].tolist(), expected[row].tolist()) for row in differing[:5]] == []
    distinct = connections.drop("row_id").n_unique()
    print(
        f"{len(rules)} paths of {len(TREES)} trees, {connections.height} rows, {distinct} of them distinct: all equal"
    )
    assert len(rules) > 1_000
