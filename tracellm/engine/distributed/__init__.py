"""Groups of workers, and the messages between them."""
