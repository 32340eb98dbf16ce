"""The APIs of partitions besides Produce and Fetch: offsets, epochs, deletion, log directories."""
