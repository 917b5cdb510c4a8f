"""Lab 4: block tables, slots, and the inputs of a step."""
