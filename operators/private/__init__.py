"""What of MindSpore is not public: classes of cells, casts of mixed precision, the division over ranks."""
