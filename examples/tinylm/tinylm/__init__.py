"""A small GPT trainer on bytes, with two interchangeable backends."""

__version__ = "1.0.0"
