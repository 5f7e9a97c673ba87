"""Memory systems: the protocol, the built-in ones, and the stores that make their forks cheap."""
