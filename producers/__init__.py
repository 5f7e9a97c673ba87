"""What writes to the stream: dataset readers, synthetic lifelogs, the replayer and the conductor."""
