"""Builds the expectations of suites, and runs suites in Great Expectations with a page of Data Docs for each."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from quality.evaluation import EXAMPLES, Suite, message, observed_value, unjudged_finding
from quality.findings import ERROR, Expectation, Finding

if TYPE_CHECKING:
    import pandas as pd


def frame_of(measures: Mapping[str, Any]) -> pd.DataFrame:
    """A DataFrame of one row with a column for each measure."""
    import pandas as pd

    return pd.DataFrame({name: pd.Series([value], dtype=_dtype(value)) for name, value in measures.items()})


def _dtype(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return {int: "int64", float: "float64"}.get(type(value), "object")


def between(
    name: str,
    description: str,
    measure: str,
    low: float | None = None,
    high: float | None = None,
    severity: str = ERROR,
) -> Expectation:
    """The measure lies between two bounds, both included."""
    arguments = {"column": measure, "min_value": low, "max_value": high}
    return Expectation(name, severity, description, "ExpectColumnMaxToBeBetween", arguments)


def none_of(name: str, description: str, measure: str, severity: str = ERROR) -> Expectation:
    """The measure, a count, is 0."""
    return between(name, description, measure, 0, 0, severity)


def equal(name: str, description: str, measure: str, other: str) -> Expectation:
    """Two measures are equal."""
    arguments = {"column_A": measure, "column_B": other}
    return Expectation(name, ERROR, description, "ExpectColumnPairValuesToBeEqual", arguments)


def one_of(name: str, description: str, column: str, values: Sequence[str], severity: str = ERROR) -> Expectation:
    """Every value of the column is one of `values`."""
    arguments = {"column": column, "value_set": list(values)}
    return Expectation(name, severity, description, "ExpectColumnValuesToBeInSet", arguments)


NONE = "none"
"""The value of a measure that lists faults, if there are none."""


def listing(faults: Sequence[str]) -> str:
    """A list of faults as a measure: the first `EXAMPLES` of them, or NONE."""
    more = f" and {len(faults) - EXAMPLES} more" if len(faults) > EXAMPLES else ""
    return ", ".join(faults[:EXAMPLES]) + more if faults else NONE


def nothing(name: str, description: str, measure: str, severity: str = ERROR) -> Expectation:
    """The measure, a `listing` of faults, is NONE."""
    return one_of(name, description, measure, [NONE], severity)


def validate(folder: Path | None, suites: Sequence[Suite]) -> tuple[tuple[Finding, ...], Path | None]:
    """The findings of every suite, in order, and the path of a page in Data Docs below `folder`.

    The page is that of the first suite with a failed expectation, or else of the last suite.
    """
    findings: list[Finding] = []
    pages: list[tuple[bool, Path | None]] = []
    for suite in suites:
        result = _run(suite)
        by_name = {found.expectation_config.meta["name"]: found for found in result.results}
        of_suite = [_finding(expectation, by_name[expectation.name]) for expectation in suite.expectations]
        findings += of_suite
        if folder is not None:
            from quality.documents import write_page

            pages.append((all(found.success for found in of_suite), write_page(folder, suite.name, of_suite, result)))
    failed = [page for success, page in pages if not success]
    return tuple(findings), (failed or [page for _, page in pages[-1:]] or [None])[0]


_CONNECT = ("pyspark.sql.connect", "pyspark.sql.connect.dataframe", "pyspark.sql.connect.session")


_STATISTICS = "scipy.stats"
"""What Great Expectations imports for expectations that no suite has; a quarter of the time of its import."""


class _ImportedOnUse(ModuleType):
    """A module in place of another one, which is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspect asks all modules for such names
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


@lru_cache(maxsize=1)
def _library() -> Any:
    """Great Expectations; imported on first use, since that takes seconds."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # Great Expectations tries to import Spark Connect. This ends the process if the main module has no file, as in
    # processes that a scheduler spawns. None in sys.modules makes the import fail, which Great Expectations handles.
    hidden = [name for name in _CONNECT if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    if _STATISTICS not in sys.modules:
        hidden.append(_STATISTICS)
        sys.modules[_STATISTICS] = _ImportedOnUse(_STATISTICS)
    try:
        import great_expectations
    finally:
        for name in hidden:
            del sys.modules[name]
    return great_expectations


@lru_cache(maxsize=1)
def _context() -> Any:
    """A context of Great Expectations that stores nothing on disk and sends no analytics."""
    gx = _library()
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context


def _run(suite: Suite) -> Any:
    """The result of one suite in Great Expectations."""
    gx, context = _library(), _context()
    asset = context.data_sources.add_or_update_pandas(suite.name).add_dataframe_asset(suite.name)
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": frame_of(suite.measures)})
    expectations = [_expectation(expectation) for expectation in suite.expectations]
    result = batch.validate(gx.ExpectationSuite(suite.name, expectations=expectations), result_format="SUMMARY")
    for found in result.results:
        # Great Expectations cannot render NumPy numbers in its pages
        if "observed_value" in found.result:
            found.result["observed_value"] = _plain(found.result["observed_value"])
    return result


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _expectation(expectation: Expectation) -> Any:
    from great_expectations import expectations as kinds

    return getattr(kinds, expectation.kind)(
        **expectation.arguments,
        description=expectation.description,
        severity="critical" if expectation.severity == ERROR else "warning",
        meta={"name": expectation.name},
    )


def _finding(expectation: Expectation, found: Any) -> Finding:
    """The finding for one result of Great Expectations."""
    problem = _exception(found.exception_info)
    if problem is not None:
        return unjudged_finding(expectation, problem)
    result = {**found.result}
    text = expectation.description if found.success else message(expectation, result)
    return Finding(expectation.name, expectation.severity, bool(found.success), _plain(observed_value(result)), text)


def _exception(info: Mapping[str, Any] | None) -> str | None:
    """The message of an exception, or None; Great Expectations gives one record, or one per metric."""
    if not info:
        return None
    records = [info] if "raised_exception" in info else [r for r in info.values() if isinstance(r, Mapping)]
    messages = [str(record.get("exception_message")) for record in records if record.get("raised_exception")]
    return messages[0] if messages else None
