"""Language servers: programs that say which errors a file has."""
