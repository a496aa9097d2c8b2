"""The frozen program that turns protocol and evidence into a verdict."""
