"""What the loop talks to: one narrow port and its adapters. Provider quirks never leave this room."""
