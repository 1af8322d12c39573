"""English patterns in what people and models write."""
