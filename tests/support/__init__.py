"""Independent computations and small helpers for the tests."""
