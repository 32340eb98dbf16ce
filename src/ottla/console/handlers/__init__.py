"""The handlers of the console, one module per section. Each returns what its page shows."""
