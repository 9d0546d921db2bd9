"""The only resource: a configuration's workspace, opened on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import PrivateAttr

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


class LakeResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A lake and its streams; `configuration` is the path of the deltatag.toml that describes them."""

    configuration: str
    _workspace: Any = PrivateAttr(default=None)

    @classmethod
    def over(cls, workspace: Workspace) -> LakeResource:
        """A resource over a workspace that is already open."""
        resource = cls(configuration=str(workspace.configuration.path.absolute()))
        resource._workspace = workspace
        return resource

    def workspace(self) -> Workspace:
        """The workspace; its Spark session starts on first use, and is shared by the steps of a run."""
        if self._workspace is None:
            from pipelines.workspace import Workspace

            self._workspace = Workspace.open(self.configuration)
        opened: Workspace = self._workspace
        return opened
