"""What turns a delta or a response into a verdict."""
