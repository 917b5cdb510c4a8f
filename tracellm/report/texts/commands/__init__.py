"""Texts of the commands of `tracellm`."""
