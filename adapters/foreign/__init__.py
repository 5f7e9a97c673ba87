"""Memory systems that others have published, each in an environment and processes of its own."""
