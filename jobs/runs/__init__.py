"""Runs: whole trainings in segments, the checkpoints between them, and the curves that they leave."""
