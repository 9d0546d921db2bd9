"""Texts that nobody would write: where one compiles, its formula says on every row what Spark's WHERE says.

DELTATAG_MUTATIONS sets how many are tried; those that are refused cost no Spark.
"""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from tests.mutated_expressions import Mutator

from . import expressions_oracle as oracle
from .expressions_rows import rows
from .test_expressions_oracle import CASES

COUNT = int(os.environ.get("DELTATAG_MUTATIONS", "300"))
FIRST = int(os.environ.get("DELTATAG_FIRST_MUTATION", "0"))
AT_ONCE = 400

pytestmark = pytest.mark.timeout(120 + COUNT)


def test_what_compiles_says_what_spark_says(spark: SparkSession) -> None:
    mutator = Mutator(CASES, 2300 + FIRST)
    table = rows(40, seed=23)
    faults, tried, compared, refused = [], 0, 0, 0
    while tried < COUNT:
        texts = [mutator.text() for _ in range(min(AT_ONCE, COUNT - tried))]
        tried += len(texts)
        for outcome in oracle.compare(spark, table, oracle.compiled(table, texts), strict=False):
            if outcome.error is not None:
                refused += 1
                continue
            if outcome.spark_error is not None:
                # what is derived is analysed by Spark before it is used; what is not must have been refused here
                if not oracle.is_derived(outcome):
                    faults.append(f"accepted ({outcome.spark_error[:200]}): {outcome.text}")
                continue
            compared += 1
            faults += [
                f"row {row}, Spark {outcome.spark[row]}, ours {outcome.ours[row]}: {outcome.text}"
                for row in outcome.differences()[:1]
            ]
    print(f"{tried} texts, {compared} compared, {refused} refused for their type, {len(faults)} faults")
    assert "\n".join(faults[:40]) == ""
    assert compared > COUNT // 10
