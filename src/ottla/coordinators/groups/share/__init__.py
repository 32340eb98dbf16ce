"""Share groups (KIP-932): members read the same partitions, each record acknowledged on its own."""
