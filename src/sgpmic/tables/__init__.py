"""Tables in: CSV, Parquet, NumPy, and what is wrong with them."""
