"""Training of the bundled model that calls tools: see README.md."""
