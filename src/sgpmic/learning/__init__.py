"""Learning: starts, optimisers, EM as pure steps, and what is kept of a fit."""
