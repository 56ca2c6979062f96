"""Different clusterings that vote."""
