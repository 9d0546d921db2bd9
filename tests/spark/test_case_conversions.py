"""Conversions of case within each other and beside ILIKE, of which Spark evaluates one."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.tagged_rules import reference_session
from tests.spark_oracle import Oracle, Tally, compare

LETTERS = ["ß", "İ", "ı", "ŉ", "ﬁ", "ΑΣ", "Σ", "aß", "SS", "ss", "i̇", "Straße", "", None, "ẞ", "ǅ", "K"]
CASES = ["upper", "lower", "ucase", "lcase"]
SUBJECTS = [
    *(f"{outer}({inner}(s))" for outer, inner in product(CASES, CASES)),
    *(f"{name}(s)" for name in CASES),
    *(
        "upper(lower(upper(s)))",
        "lower(concat(upper(s), ''))",
        "upper(substring(s, 1, 1))",
        "upper(trim(s))",
        "upper(n)",
    ),
]
TESTS = [
    *("{x} = 'ss'", "{x} IN ('SS', 'ß', 'i̇', 'İ')", "{x} LIKE '__'", "length({x}) = 2", "{x} RLIKE '^..$'"),
    *(
        "{x} ILIKE 'ss'",
        "{x} NOT ILIKE '__%'",
        "{x} ILIKE ANY ('_', 'i̇%')",
        "{x} ILIKE ALL ('s%', '%S')",
        "ilike({x}, '_')",
    ),
    *("CASE WHEN {x} ILIKE '_' THEN TRUE ELSE FALSE END", "{x} ILIKE 'ŉ'", "contains({x}, 's')"),
]


def test_rows_are_those_that_spark_keeps(spark, tmp_path) -> None:
    columns = {"s": LETTERS, "n": pa.array(range(len(LETTERS)), pa.int32()), "pk": range(len(LETTERS))}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    pq.write_table(table, tmp_path / "rows.parquet")
    session = reference_session(spark, "UTC")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    tally = Tally()
    texts = [test.format(x=subject) for subject, test in product(SUBJECTS, TESTS)]
    compare(Oracle(session, session.read.parquet(str(tmp_path / "rows.parquet"))), table, texts, tally)
    assert not tally.differences, "\n".join(map(str, tally.differences[:10])) + f"\n{tally}"
    assert tally.compared > 300 and tally.refused_by_both == 0
