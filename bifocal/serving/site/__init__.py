"""A static copy of the search page: a folder that any web server serves, with the model in the
browser."""
