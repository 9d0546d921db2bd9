"""A source of rows of every kind that is written once, and lakes over copies of it."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from pipelines.compile import compile_scopes
from tests.java import AS_IN_PRODUCTION
from tests.spark.tagging import rows
from tests.spark.tagging.rows import RULES, STREAM, append_to


@pytest.fixture
def spark_settings() -> dict[str, str]:
    """Code is compiled, as it is in production."""
    return AS_IN_PRODUCTION


@pytest.fixture(autouse=True)
def way(request, monkeypatch) -> str:
    """Who tags and writes: "workers", "spark", which alone can write a VARIANT, or "local", this process."""
    chosen = getattr(request, "param", "workers")
    monkeypatch.setattr(rows, "WITH_VARIANT", chosen == "spark")
    return chosen


@pytest.fixture(scope="session")
def two_versions(spark, tmp_path_factory):
    """The folder of a source of 200 rows in two versions, written once for each way and copied from then on."""

    made: dict[bool, str] = {}

    def folder() -> str:
        if rows.WITH_VARIANT not in made:
            made[rows.WITH_VARIANT] = str(tmp_path_factory.mktemp("sources") / "source")
            append_to(spark, made[rows.WITH_VARIANT], 0, 120)
            append_to(spark, made[rows.WITH_VARIANT], 120, 200)
        return made[rows.WITH_VARIANT]

    return folder


@pytest.fixture
def prepared(new_workspace, add_rules, two_versions, way):
    """A workspace with a source of 200 rows in two versions and compiled rules."""

    def prepare(rules=RULES, id_type: str = "string", **settings: Any):
        runner = "local" if way == "local" else "auto"
        workspace = new_workspace({"s": {**STREAM, **settings}}, id_type=id_type, runner=runner)
        shutil.copytree(two_versions(), workspace.configuration.streams["s"].source)
        add_rules(workspace, *rules)
        failed = [r.error for r in compile_scopes(workspace) if r.error]
        assert not failed
        return workspace

    return prepare
