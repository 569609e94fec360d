"""AlterConfigs: replaces all that is set for a resource."""

from __future__ import annotations

from drayd.call import Call, Result
from drayd.configs.changes import Change, Operation
from drayd.handlers.k44_incremental_alter_configs import alter_all

KEY = 33
NAME = "AlterConfigs"
VERSIONS = range(3)


async def handle(call: Call) -> Result:
    return await alter_all(
        call, lambda entry: Change(entry.name, Operation.SET, entry.value), replace=True
    )
