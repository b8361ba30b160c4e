"""The routes, one module a noun. A handler parses, calls a service and renders; it decides nothing."""
