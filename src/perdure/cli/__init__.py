"""The command line. `main.py` is its door; each command is a module with a function `command`."""
