"""Pages of the web: which addresses may be asked, the download, and the text of what came."""
