"""Tools for one directory of this machine. Nothing is imported here: the search starts a process for which that counts."""
