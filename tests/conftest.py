"""One Spark session for all tests, and lakes in folders of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases import SOAK
from tests.java import INTERPRETED, PLANNED_ONCE, SHORT_LIVED, WITHOUT_SUMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.workspace import Workspace


LONGEST = (
    *(
        "test_bombs",
        "test_demo",
        "test_retag",
        "test_tag",
        "test_quality",
        "test_join_keys",
        "test_join",
        "test_sources",
    ),
    *("test_exactly_once", "test_catalog", "test_maintain", "test_patterns", "test_quality_joined", "test_kill"),
    *("test_callers_session", "test_errors_inside", "test_rule_types", "test_largest"),
)
"""Files that take longest: where several processes share the files these come first, so that none is the last one."""
MATCHING = (
    "test_lists",
    "test_choice",
    "test_damages",
    "test_fill",
    "test_summaries",
    "test_equality_blocks",
    "test_many_rules",
    "test_engines",
    "test_stored_structures",
    "test_selection_constructs",
    "test_term_sets",
)
"""Files that need the kernel that matches, which takes a minute to compile with checks of bounds. Of two processes that
share the tests of kernels one begins with the first of these files, and the other one with those that need others."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files for processes that share them; the tests of a file stay together."""
    if hasattr(config, "workerinput"):
        if os.environ.get("NUMBA_BOUNDSCHECK"):
            matching = {name: place for place, name in enumerate(MATCHING)}
            items.sort(key=lambda item: matching.get(item.path.stem, -1))
            return
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as deltatag starts it (two cores, UTC, ANSI), shared by all tests of the run.

    It interprets its queries, and compiles code for them in `make soak`, where Spark is asked what a rule means.
    """
    from pipelines.settings.configuration import parse_configuration
    from pipelines.spark.session import open_session

    folder = tmp_path_factory.mktemp("spark")
    settings = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    settings |= PLANNED_ONCE | WITHOUT_SUMS | ({} if SOAK else INTERPRETED)
    settings["spark.local.dir"] = str(folder / "local")
    settings["spark.driver.extraJavaOptions"] = SHORT_LIVED
    # VACUUM lists a folder by as many tasks, however few files it has: 10,000 unless it is told otherwise.
    settings["spark.sql.sources.parallelPartitionDiscovery.parallelism"] = "2"
    document = {"lake": {"root": "lake"}, "spark": settings}
    session = open_session(parse_configuration(document, folder / "deltatag.toml"))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Files that can be made again go to the test run's own folder, not to the user's."""
    monkeypatch.setenv("DELTATAG_SCRATCH", str(tmp_path_factory.getbasetemp() / "scratch"))


@pytest.fixture
def spark_settings() -> Mapping[str, str]:
    """Settings of the sessions of `new_workspace`. Files of tests that are to have code compiled, as it is in
    production, give others: those of tagging, of joins by both runners, and of what is compared with Spark's reader."""
    return INTERPRETED


@pytest.fixture
def new_workspace(
    tmp_path: Path, request: pytest.FixtureRequest, spark_settings: Mapping[str, str]
) -> Callable[..., Workspace]:
    """Makes a lake with empty tables below the test's folder, over the given streams; Spark only where wanted.

    With `runner` "local" this process tags, though there is a session; without it that session does.
    """

    def make(
        streams: Mapping[str, Any] | None = None,
        rules: Mapping[str, Any] | None = None,
        id_type: str = "string",
        spark: bool = True,
        joins: Mapping[str, Any] | None = None,
        runner: str = "auto",
        lists: Mapping[str, Any] | None = None,
        root: str = "lake",
    ) -> Workspace:
        from pipelines.settings.configuration import parse_configuration
        from pipelines.workspace import Workspace
        from tests.lakes import make_tables

        lake = {"root": root, "runner": runner}
        document: dict[str, Any] = {"lake": lake, "streams": streams or {}, "rules": rules or {}}
        document |= {"joins": joins or {}, "lists": lists or {}, "spark": spark_settings if spark else {}}
        configuration = parse_configuration(document, tmp_path / "deltatag.toml")
        workspace = Workspace(configuration, request.getfixturevalue("spark") if spark else None)
        make_tables(workspace, id_type)
        return workspace

    return make


@pytest.fixture
def add_rules() -> Callable[..., None]:
    """Appends rules to a workspace's table: (rule_id, scope, expression) or mappings of columns."""

    def add(workspace: Workspace, *rules: Any) -> None:
        from tests.lakes import write_rules

        write_rules(workspace, rules)

    return add
