"""What a node has as a broker: partitions, coordinators, handlers, lifecycle."""
