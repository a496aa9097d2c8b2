"""The driver on the login node."""

__version__ = "0.1.0"
