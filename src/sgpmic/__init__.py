"""Clustering and latent-space learning with sparse Gaussian processes."""
