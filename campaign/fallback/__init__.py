"""Trying a fallback: each side goes on from a checkpoint of the other. Nothing gates by what comes out."""
