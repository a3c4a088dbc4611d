"""Two releases on the searches of real clients, in a canary or in a shadow: counts, intervals,
report."""
