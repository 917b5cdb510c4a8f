"""Lab 12: a scheduling policy of the student's own."""
