"""Command-line interface: one module per command, with options and calls to lower layers."""
