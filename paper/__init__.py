"""The paper, rerun: its data sets, metrics, methods, table and figures."""
