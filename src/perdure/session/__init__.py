"""Sessions as services: admission, promotion, claims, recovery, history, status. No runner, model or HTTP in this room."""
