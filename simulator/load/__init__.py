"""Loads: what one is and how it runs, in one process or several; and series of them, as a sweep or a comparison."""
