"""The rows of the table of keys, one module per subject; `ottla.config.keys` joins them."""
