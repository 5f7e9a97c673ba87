"""What runs inside a foreign system's environment: the standard library, the system's driver, and nothing of ours."""
