"""Events, clock, log, protocols, run orchestration and the command line."""
