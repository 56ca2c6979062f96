"""The pass over the rows: a scan over blocks, with one body for CPUs and one for GPUs."""
