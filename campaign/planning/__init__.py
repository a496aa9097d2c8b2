"""What is asked for, what it needs and what it can find out: matrix, protocol, calibration and power."""
