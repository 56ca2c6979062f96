"""The methods of the comparison, one a file."""
