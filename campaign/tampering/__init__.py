"""Tampering with copies of a campaign, one way at a time, to see that its verification finds out."""
