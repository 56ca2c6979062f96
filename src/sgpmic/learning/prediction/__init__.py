"""Answers for new rows, and cells that are missing."""
