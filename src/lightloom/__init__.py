"""lightloom: thousands of accelerators, one machine."""

__version__ = "0.1.0"
