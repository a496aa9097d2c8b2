"""Allocations for machines that the driver does not reach: written as bundles, run there, and taken in again."""
