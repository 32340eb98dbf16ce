"""Programs for those who work on Ottla; none is installed with it."""
