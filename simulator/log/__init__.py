"""The event log: protocol and implementations."""
