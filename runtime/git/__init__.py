"""Git repositories with a login: commands, and the last commit of each path."""
