"""Spans out of records, after the calls: builder, request tracker, encoder, and the converter of whole files."""
