"""The benchmarks that write rows by hand still write the rows that we write."""

import pytest

from bench import bench_publish, bench_store


@pytest.mark.parametrize("bench", [bench_publish, bench_store])
def test_a_benchmark_of_writing_runs_and_every_side_writes(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "PLACE", tmp_path)
    monkeypatch.setattr(bench, "SECONDS", 0.02)
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "PUBLISHERS" if bench is bench_publish else "WRITERS", (1, 2))
    rows = bench.run()
    assert rows
    assert all(row.median > 0 for row in rows)
