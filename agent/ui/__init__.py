"""The front ends. They read events; nothing below this package knows them."""
