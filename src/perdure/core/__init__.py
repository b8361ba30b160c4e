"""The quiet core: facts, nouns, folds and tables. No await, clock, randomness, logging or drivers live below this door."""
