"""Checks of stored batches, and the damaged ranges that they found."""
