"""Tables in: CSV, Parquet, NumPy, and what is wrong with them.

The path of a row, from a file to numbers:

1. `reader.open_table` finds out the format. A `conversions.Source` (`text_files`, `typed_files`)
   yields pieces of the columns that are asked for, as Arrow record batches, and the place of every
   row; a `reader.TableReader` makes blocks of them.
2. `conversions` makes numbers of columns: `to_numbers` where they have to be plain numbers
   (`TableReader.blocks`), `Cells` where they may be anything, of which `cell_text` reads the text.
3. An `encoder.TableEncoder` decides in fit what columns are (`kinds`), which of them stay and how
   they are encoded (`plans`), and applies the encodings (`columns`) in transform.
4. `dataset` does all of this for the command line, in blocks where tables are large.

Whatever is wrong becomes an `errors.TableError`; `errors` also words what is wrong with cells.
"""
