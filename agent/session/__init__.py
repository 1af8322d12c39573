"""Sessions: the log, its entries, and the state computed from them."""
