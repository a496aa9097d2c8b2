"""What runs inside a side, in the side's own interpreter: it holds the adapter's object and does as the parent asks."""
