"""The portable form of a context: a stream of JSON lines, read, checked and written."""
