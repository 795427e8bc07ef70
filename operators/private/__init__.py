"""MindSpore's private names that checks need: classes of cells, casts of mixed precision, the layout over ranks."""
