"""The loop: one busy period per session, turn by turn, step by step."""
