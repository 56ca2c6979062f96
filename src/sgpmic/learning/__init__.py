"""Learning: starting values and the routines that improve them."""
