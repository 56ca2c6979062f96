"""What a table supports: clusters at all, how many, how many dimensions."""
