"""Model files, checkpoints and run folders, all written atomically."""
