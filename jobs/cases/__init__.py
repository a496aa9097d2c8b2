"""Numerical cases: matched updates of two sides, how the sides meet, and the canonical inputs that they start from."""
