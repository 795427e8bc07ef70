"""The files of dumps, read and never unpickled, and the numbers in them."""
