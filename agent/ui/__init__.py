"""The front ends. They read events; lower packages do not depend on them."""
