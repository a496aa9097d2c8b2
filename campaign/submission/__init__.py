"""From what is missing to jobs: choosing slots, writing allocations, handing them to a scheduler exactly once."""
