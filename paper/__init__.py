"""Reproduction of the paper: its data sets, metrics, methods, table and figures."""
