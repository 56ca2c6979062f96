"""What is made of the rows before anything is learned: order, scales, categories, gaps."""
