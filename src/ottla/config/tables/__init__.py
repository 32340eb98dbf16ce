"""The rows of the table of keys, one module per subject; `ottla.config.key_table` joins them."""
