"""A package of a stranger, who knows the pages about extensions and the api, and no source."""
