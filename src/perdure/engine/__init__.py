"""The composition root: the only room with all the keys. No rules live here."""
