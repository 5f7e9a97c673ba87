"""Protocols: the pure state machines of the benchmarks, which say what event follows which."""
