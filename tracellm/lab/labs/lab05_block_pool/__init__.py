"""Lab 5: the block pool and its queue of free blocks."""
