"""``python -m paper``: reproduce the paper's table and figures."""

import os

# Before JAX is imported: loading a compiled program makes XLA print errors about tuning flags that
# no processor has.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from paper.cli import app

app(prog_name="python -m paper")
