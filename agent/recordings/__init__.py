"""Sessions that other agents recorded, in one form."""
