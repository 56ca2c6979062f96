"""Model files, checkpoints and run folders: written whole, or not at all."""
