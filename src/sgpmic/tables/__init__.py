"""Reading and encoding of tables: CSV, Parquet, NumPy and others.

The path of a row, from a file to numbers:

1. `reader.open_table` detects the format. A `conversions.Source` (`text_files`, `typed_files`)
   yields the requested columns as Arrow record batches; a `reader.TableReader` regroups them into
   blocks.
2. `conversions` converts columns: to plain numbers where all cells are, and to `Cells`, which may
   be anything; `cell_text` parses text cells.
3. An `encoder.TableEncoder` infers in fit the kinds of the columns (`kinds`), selects those to keep
   and their encodings (`plans`), and applies the encodings (`columns`) in transform.
4. `dataset` does all of this for files, in blocks if tables are large.

All problems raise `errors.TableError`; `errors` also builds the messages about bad cells.
"""
