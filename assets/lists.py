"""Value lists that rules name, as observable source assets."""

from typing import Any

import dagster as dg

from assets.names import RESOURCE, list_key
from assets.rules import DELTA, MISSING
from pipelines.settings.model import ListTable


def list_asset(listed: ListTable) -> Any:
    """`lists/<name>_list`: its data version is the table's id and Delta version, and the column."""

    @dg.observable_source_asset(
        key=list_key(listed.name),
        group_name="rules",
        description=(
            f"Values that rules name as LIST('{listed.name}'). Editing this table changes what these rules match."
        ),
        metadata={"dagster/uri": listed.source},
        tags=DELTA,
        required_resource_keys={RESOURCE},
    )
    def look_at_list(context: dg.AssetExecutionContext) -> dg.DataVersion:
        """The list's version."""
        from pipelines.errors import PipelineError
        from pipelines.value_lists import list_versions

        try:
            versions = list_versions(context.resources.lake.workspace().configuration, [listed.name])
        except PipelineError:
            return dg.DataVersion(MISSING)
        return dg.DataVersion(" ".join(map(str, versions[listed.name])))

    return look_at_list
