"""What `[lake] maintenance` may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ConfigurationError
from pipelines.settings.configuration import parse_configuration
from pipelines.settings.model import Maintenance


def test_what_may_be_configured(tmp_path: Path) -> None:
    def read(value: Any) -> Maintenance:
        document = {"lake": {"root": "lake", **({} if value is None else {"maintenance": value})}}
        return parse_configuration(document, tmp_path / "deltatag.toml").lake.maintenance

    assert read(None) == read("auto") == read({}) == Maintenance()
    assert read("never") == read({"mode": "never"}) == Maintenance(automatic=False)
    day = 86_400_000_000
    found = read({"versions": "30 days", "runs": "1 day", "quarantine": "365 days"})
    assert found == Maintenance(True, 30 * day, day, 365 * day)
    for wrong in ("often", {"mode": "often"}, {"runs": "soon"}, {"run": "1 day"}, 7):
        with pytest.raises(ConfigurationError, match="maintenance"):
            read(wrong)
