"""What reads the stream: memory agents, judges' runner, tap, scoreboard and reports."""
