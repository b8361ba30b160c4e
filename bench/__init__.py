"""Measurements, apart from the tests: `python -m bench` runs every `bench_*.py` beside this file."""
