"""Training of the bundled model that reads pictures: see README.md."""
