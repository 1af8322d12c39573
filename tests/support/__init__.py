"""What tests share: a strict validator of requests, and a loopback server that uses it."""
