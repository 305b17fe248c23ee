"""The vector lane: storage, index and search of the vectors of passages."""
