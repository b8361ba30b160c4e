-- Statements that SQLite needs in its own words.

-- name: sequence_lock(aggregate_id)^
-- The number that events name the aggregate by and the last number taken, held still: the one writer is lock enough.
SELECT aggregate, seq FROM event_sequence WHERE aggregate_id = :aggregate_id;

-- name: event_last_position()$
-- The newest commit position ever given, also where its event is removed; null for a new log.
SELECT seq FROM sqlite_sequence WHERE name = 'event';

-- name: claim_fence(id, owner_id)^
-- The claim, held still for the rest of the unit: the one writer is lock enough.
SELECT id, session_id, owner_id, purpose, assistant_message_id, phase, interrupted, time_created, expires_at,
       recovery_error, recovery_attempts, recovery_not_before
FROM session_execution WHERE id = :id AND owner_id = :owner_id;
