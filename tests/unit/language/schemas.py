"""The columns that the tests of the rule language name."""

from __future__ import annotations

import pyarrow as pa

from rules_index.language.scope import Scope

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("t", pa.int8()),
        ("h", pa.int16()),
        ("d", pa.decimal128(10, 2)),
        ("w", pa.decimal128(38, 0)),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("u", pa.string()),
        ("b", pa.bool_()),
        ("c", pa.bool_()),
        ("dt", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("n", pa.timestamp("us")),
        ("bin", pa.binary()),
        ("arr", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("st", pa.struct([("p", pa.int32()), ("Q", pa.string())])),
        ("Dep.Delay", pa.int32()),
    ]
)
SCOPE = Scope(SCHEMA)
