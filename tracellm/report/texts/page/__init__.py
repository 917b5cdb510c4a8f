"""Texts of the report page."""
