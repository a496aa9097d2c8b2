"""What became of what was submitted: scheduler, files and processes, and the state that follows."""
