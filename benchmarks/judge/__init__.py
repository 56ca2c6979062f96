"""Synthetic labeled clustering problems, and the training of the judge of partitions on them."""
