"""The durable log: append and project in one transaction, then announce; read and follow."""
