"""Scaled conjugate gradients and L-BFGS, one step at a time."""
