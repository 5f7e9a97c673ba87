"""Real Kafka brokers on loopback without Docker: see `cluster`."""
