"""The record of acts: the ledger, its lock, and the registry of freezes beside all homes."""
