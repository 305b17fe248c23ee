"""The lookup: one question in, a LookupResult out."""
