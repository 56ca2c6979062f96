"""The one pass over the rows: one scan over blocks, with a body for processors and one for GPUs."""
