"""Tables with names and labels of their rows, read as the commands read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sgpmic.tables.dataset import Table, read_whole
from sgpmic.tables.reader import open_table


def read_table(
    path: Path,
    *,
    columns: Sequence[str] = (),
    id_column: str | None = None,
    label_column: str | None = None,
) -> Table:
    """Read a table of numbers, with the ids and labels of its rows as text."""
    reader = open_table(path)
    texts = [name for name in (id_column, label_column) if name is not None]
    features = reader.choose_features(columns, texts)
    return read_whole(reader, None, features, id_column, label_column)
