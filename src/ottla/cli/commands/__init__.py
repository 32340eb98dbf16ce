"""The commands of ``ottla``, one module per noun, with the rules that only they use."""
