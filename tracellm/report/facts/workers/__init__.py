"""Facts of several workers: the part of the model that each has, and the use of its time."""
