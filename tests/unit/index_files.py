"""Indexes in files, some of which refer to others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import rules_index as ri
from rules_index.index.compiled import dumps


def saved(compiled: ri.CompiledRules, folder: Path) -> Path:
    """A file of the index, named by its content, which shares what it can with the files beside it."""
    compiled.save(folder / "new", shares_files=True)
    data = (folder / "new").read_bytes()
    return (folder / "new").rename(folder / f"{hashlib.sha256(data).hexdigest()}.index")


def require_refused(index: Path, shared: Path, other: ri.CompiledRules) -> None:
    """The index is not loaded without the file that it shares, with a damaged one, or with another index in it."""
    with pytest.raises(ri.ArtifactError, match="load it from the folder"):
        ri.loads(index.read_bytes())
    data = bytearray(shared.read_bytes())
    data[-100] ^= 1
    for content in (bytes(data), data[: len(data) // 2], b"", dumps(other), index.read_bytes(), None):
        shared.unlink()
        if content is not None:
            shared.write_bytes(content)
        with pytest.raises(ri.ArtifactError):
            ri.load(index)
        shared.touch()
