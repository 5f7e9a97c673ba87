"""The built-in memory systems. Each forks in O(1)."""
