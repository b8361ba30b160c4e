"""Rows and transactions: named SQL behind a narrow port. No session rule lives here."""
