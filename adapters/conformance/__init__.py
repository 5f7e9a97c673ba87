"""One suite for all memory systems: the demands that runs rely on, each as a case that a broken system fails.

    async with scratch_folder(user_base()) as folder:
        results = await check(MyMemory, MyMemory.capabilities, folder=folder)

`egostream systems check NAME` is the same on the command line; docs/your-memory.md lists the demands.
"""

from adapters.conformance.bench import NotApplicableError
from adapters.conformance.case import Case
from adapters.conformance.ledger import BrokenError
from adapters.conformance.models import RuleEmbedder, RuleModel, Switch
from adapters.conformance.suite import CASES, Result, check, passed

__all__ = [
    "CASES",
    "BrokenError",
    "Case",
    "NotApplicableError",
    "Result",
    "RuleEmbedder",
    "RuleModel",
    "Switch",
    "check",
    "passed",
]
