"""Command line of the components: commands, help and errors."""
