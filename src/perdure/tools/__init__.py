"""What agents can do: schemas of Python functions, and the ready toolsets."""
