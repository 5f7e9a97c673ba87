"""The audit: what a run's log proves of the design's invariants, and where it shows them broken. `Auditor` is
pure, `audit_log` feeds it a log once through."""

from consumers.audit.auditor import AUDIT_TOPICS, Auditor
from consumers.audit.certificate import Certificate, Finding, Place
from consumers.audit.reader import audit_log
from consumers.audit.report import one_line, render

__all__ = [
    "AUDIT_TOPICS",
    "Auditor",
    "Certificate",
    "Finding",
    "Place",
    "audit_log",
    "one_line",
    "render",
]
