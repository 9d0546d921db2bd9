"""What the log of a table tells without a JVM."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.lake.lake import rows_in

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def inline(rows: list[int]) -> dict:
    """A deletion vector of these rows within the log: Delta protocol, "Deletion Vector Format"."""
    container = struct.pack(f"<{len(rows)}H", *rows)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + container
    data = struct.pack("<iqI", 1681511377, 1, 0) + bitmap
    size = len(data)
    data += b"\0" * (-size % 4)
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": len(rows)}


def test_deleted_rows_are_not_counted(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"x": range(100)}))
    write_deltalake(str(tmp_path), pa.table({"x": range(10)}), mode="append")
    assert rows_in(DeltaTable(str(tmp_path))) == 110
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            features = ["deletionVectors"]
            versions = {"minReaderVersion": 3, "minWriterVersion": 7}
            action["protocol"] = {**versions, "readerFeatures": features, "writerFeatures": features}
        if "add" in action:
            action["add"]["deletionVector"] = inline([3, 5, 99])
    log.write_text("\n".join(map(json.dumps, actions)))
    assert rows_in(DeltaTable(str(tmp_path))) == 107
