"""The teacher's side of the course: submissions are read, marked, shown on pages, compared, and exported to graders."""
