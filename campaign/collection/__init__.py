"""From what attempts left to checked rows in the cache."""
