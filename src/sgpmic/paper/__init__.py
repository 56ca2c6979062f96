"""The paper, rerun: its data sets, metrics, rival methods, table and figures."""
