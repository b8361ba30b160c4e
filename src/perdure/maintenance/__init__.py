"""Looking after a database: verify, rebuild, doctor, export and import, backup."""
