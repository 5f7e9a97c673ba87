"""Tools for developing egostream; nothing of the package needs them."""
