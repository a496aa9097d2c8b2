"""Measuring a side: its process from import to close, warm-up, windows, and the calibration of a pilot."""
