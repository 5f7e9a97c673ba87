"""The models of a run, for memory systems that ask over HTTP by a client of their own: docs/gateway.md.

    async with context.gateway.stage("mine@A1", "ingest", segment=7) as stage:
        ...  # the system asks context.gateway.url_of("mine@A1")
    stage.usage

`adapters.gateway.server` opens the port; what is here needs no web server.
"""

from adapters.gateway.lanes import BUNDLED, Gateway, LaneGateway
from adapters.gateway.stages import Account, Stage

__all__ = ["BUNDLED", "Account", "Gateway", "LaneGateway", "Stage"]
