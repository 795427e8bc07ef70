"""Files of dumps, read without unpickling, and the numbers in them."""
