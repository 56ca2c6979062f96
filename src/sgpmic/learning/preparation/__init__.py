"""What is made of the rows before anything is learned: units, order, categories, gaps."""
