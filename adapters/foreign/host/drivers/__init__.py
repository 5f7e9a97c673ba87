"""One module for each foreign system, named as the system is. Its class of the `Driver` protocol is `DRIVER`."""
