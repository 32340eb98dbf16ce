"""The brokers that are compared, and the client programs that load them."""
