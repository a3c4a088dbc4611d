"""Decision whether an exported model replaces the champion: pure functions, without the
registry."""
