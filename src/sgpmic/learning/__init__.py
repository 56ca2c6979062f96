"""Learning: starts, optimizers, EM as pure steps, and what is kept of a fit."""
