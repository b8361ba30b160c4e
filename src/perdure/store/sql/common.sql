-- Statements both databases run as they are. A name stands here, or in both dialect files, never in both places.

-- == events ===================================================================================================================

-- name: sequence_insert(aggregate_id, seq, owner_id)$
-- A new aggregate with its last number taken and its owner; the number that events name it by.
INSERT INTO event_sequence (aggregate_id, seq, owner_id) VALUES (:aggregate_id, :seq, :owner_id) RETURNING aggregate;

-- name: sequence_get(aggregate_id)^
-- The number that events name the aggregate by, the last number taken, and who owns it in replication.
SELECT aggregate, seq, owner_id FROM event_sequence WHERE aggregate_id = :aggregate_id;

-- name: sequence_move(aggregate, before, seq)!
-- The last number taken, where the one before is still what it was.
UPDATE event_sequence SET seq = :seq WHERE aggregate = :aggregate AND seq = :before;

-- name: sequence_put(aggregate_id, seq, owner_id)$
-- Set number and owner of an aggregate that is there (replay); the number that events name it by.
UPDATE event_sequence SET seq = :seq, owner_id = :owner_id WHERE aggregate_id = :aggregate_id RETURNING aggregate;

-- name: sequence_own(aggregate_id, owner_id)!
-- Give the aggregate another owner.
UPDATE event_sequence SET owner_id = :owner_id WHERE aggregate_id = :aggregate_id;

-- name: sequence_delete(aggregate_id)$
-- Forget the aggregate; only now may its events go. Answers the number they name it by, null where there is no such row.
DELETE FROM event_sequence WHERE aggregate_id = :aggregate_id RETURNING aggregate;

-- name: sequence_aggregates(after, limit)
-- Aggregates in id order, after one.
SELECT aggregate_id, seq FROM event_sequence WHERE aggregate_id > :after ORDER BY aggregate_id LIMIT :limit;

-- name: event_type(name)$
-- The number of a type, null where it has none yet.
SELECT number FROM event_type WHERE name = :name;

-- name: event_type_name(number)$
-- The type of a number, null where there is none.
SELECT name FROM event_type WHERE number = :number;

-- name: event_type_insert(name)$
-- The number of a new type.
INSERT INTO event_type (name) VALUES (:name) RETURNING number;

-- name: event_append(id, aggregate, seq, type, created, data, metadata, earlier, proof)*!
-- Store events, at one commit position after the other; none where its id is in the log already.
INSERT INTO event (id, aggregate, seq, type, created, data, metadata, earlier, proof)
VALUES (:id, :aggregate, :seq, :type, :created, :data, :metadata, :earlier, :proof)
ON CONFLICT (id) WHERE id IS NOT NULL DO NOTHING;

-- name: event_proof(position)$
-- What the event at that commit position proves, null for none.
SELECT proof FROM event WHERE position = :position;

-- name: event_by_id(id)^
-- The event of a chosen id, wherever it is.
SELECT event.id, whole.aggregate_id, event.seq, type, created, data, metadata, position, event.aggregate, earlier
FROM event JOIN event_sequence AS whole USING (aggregate) WHERE event.id = :id;

-- name: event_at(aggregate_id, seq)^
-- The event at one place of one aggregate.
SELECT event.id, whole.aggregate_id, event.seq, type, created, data, metadata, position, event.aggregate, earlier
FROM event_sequence AS whole JOIN event USING (aggregate)
WHERE whole.aggregate_id = :aggregate_id AND event.seq = :seq;

-- name: event_page(aggregate_id, after, limit)
-- Events of one aggregate after a sequence number.
SELECT event.id, whole.aggregate_id, event.seq, type, created, data, metadata, position, event.aggregate, earlier
FROM event_sequence AS whole JOIN event USING (aggregate)
WHERE whole.aggregate_id = :aggregate_id AND event.seq > :after ORDER BY event.seq LIMIT :limit;

-- name: event_feed(after, limit)
-- Events of all aggregates after a commit position.
SELECT event.id, whole.aggregate_id, event.seq, type, created, data, metadata, position, event.aggregate, earlier
FROM event JOIN event_sequence AS whole USING (aggregate)
WHERE position > :after ORDER BY position LIMIT :limit;

-- name: event_stored(aggregate, seq)^
-- What an event says by itself, and when.
SELECT data, created FROM event WHERE aggregate = :aggregate AND seq = :seq;

-- name: event_newest_step(aggregate)^
-- The fact that made the newest assistant, a step's first: seq, and what it says.
SELECT seq, data FROM event WHERE aggregate = :aggregate AND type = 2 AND seq = (
    SELECT seq FROM session_message WHERE session = :aggregate AND type = 'assistant' ORDER BY seq DESC LIMIT 1);

-- name: event_newest_of(aggregate_id, type)$
-- The newest seq of a type in an aggregate, null if it has none; walks backwards, for the rare hour it is asked.
SELECT seq FROM event
WHERE aggregate = (SELECT aggregate FROM event_sequence WHERE aggregate_id = :aggregate_id)
AND type = (SELECT number FROM event_type WHERE name = :type)
ORDER BY seq DESC LIMIT 1;

-- name: event_newest_interrupt(aggregate_id)$
-- The newest seq at which an interrupt was asked for, null if none was; by the index of just those.
SELECT seq FROM event
WHERE aggregate = (SELECT aggregate FROM event_sequence WHERE aggregate_id = :aggregate_id) AND type = 1
ORDER BY seq DESC LIMIT 1;

-- name: event_delete(aggregate)!
-- Remove the events of an aggregate whose sequence row is gone.
DELETE FROM event WHERE aggregate = :aggregate;

-- == sessions =================================================================================================================

-- name: session_insert(number, id, agent, model, title, metadata, policy, forked_from, time_created)!
-- A new session row, under the number of its log; none where the id is already projected.
INSERT INTO session (number, id, agent, model, title, metadata, policy, forked_from, time_created, time_updated)
VALUES (:number, :id, :agent, :model, :title, :metadata, :policy, :forked_from, :time_created, :time_created)
ON CONFLICT (id) DO NOTHING;

-- name: session_get(id)^
-- One session.
SELECT id, agent, model, title, metadata, policy, archived, forked_from, time_created, time_updated,
       tokens_input, tokens_output, tokens_reasoning, tokens_cache_read, tokens_cache_write, cost, unknown_cost, unknown_tokens,
       turn_usage, execution_id, execution_purpose, parked, held, deleting, wake_attempts
FROM session WHERE id = :id;

-- name: session_flags(id)^
-- What is operational of one session.
SELECT held, deleting, wake_attempts FROM session WHERE id = :id;

-- name: session_page(time_created, id, limit)
-- Sessions, newest first, before a (time, id).
SELECT id, agent, model, title, metadata, policy, archived, forked_from, time_created, time_updated,
       tokens_input, tokens_output, tokens_reasoning, tokens_cache_read, tokens_cache_write, cost, unknown_cost, unknown_tokens,
       turn_usage, execution_id, execution_purpose, parked, held, deleting, wake_attempts
FROM session WHERE (time_created, id) < (:time_created, :id) ORDER BY time_created DESC, id DESC LIMIT :limit;

-- name: session_count()$
-- How many sessions there are.
SELECT count(*) FROM session;

-- name: session_stirring(limit)
-- Sessions that may be doing or awaiting something; each other one is idle.
SELECT session_id FROM session_execution
UNION SELECT session.id FROM session_input AS input JOIN session ON session.number = input.session
      WHERE input.promoted_seq IS NULL AND input.outcome IS NULL
UNION SELECT id FROM session WHERE parked = 1
UNION SELECT id FROM session WHERE held = 1
LIMIT :limit;

-- name: session_update(id, title, metadata, archived, policy, time)!
-- Change the settings that are not null.
UPDATE session SET title = coalesce(:title, title), metadata = coalesce(:metadata, metadata),
       archived = coalesce(:archived, archived), policy = coalesce(:policy, policy), time_updated = :time
WHERE id = :id;

-- name: session_set_agent(id, agent, time)!
-- Another agent answers.
UPDATE session SET agent = :agent, time_updated = :time WHERE id = :id;

-- name: session_set_model(id, model, time)!
-- Another model answers.
UPDATE session SET model = :model, time_updated = :time WHERE id = :id;

-- name: session_move(id, time, input, output, reasoning, cache_read, cache_write, cost, unknown_cost, unknown_tokens, turn_usage, execution_id, purpose, parked, wake_attempts)!
-- What running a session changes: its totals, those of the turn that is not settled yet, the open execution, the claims taken.
UPDATE session SET time_updated = :time, tokens_input = :input, tokens_output = :output, tokens_reasoning = :reasoning,
       tokens_cache_read = :cache_read, tokens_cache_write = :cache_write, cost = :cost, unknown_cost = :unknown_cost,
       unknown_tokens = :unknown_tokens, turn_usage = :turn_usage, execution_id = :execution_id, execution_purpose = :purpose,
       parked = :parked, wake_attempts = :wake_attempts
WHERE id = :id;

-- name: session_set_held(id, held)!
-- An imported session that nothing may start, or no longer.
UPDATE session SET held = :held WHERE id = :id;

-- name: session_set_deleting(id)!
-- From now on nothing is admitted or claimed.
UPDATE session SET deleting = 1 WHERE id = :id;

-- name: session_delete(id)!
-- All rows of the session go with it.
DELETE FROM session WHERE id = :id;

-- name: session_deleting()
-- Sessions whose deletion is not finished.
SELECT id FROM session WHERE deleting = 1;

-- name: tombstone_put(session_id, time)!
-- A session of this id existed and is gone.
INSERT INTO tombstone (session_id, time) VALUES (:session_id, :time) ON CONFLICT (session_id) DO NOTHING;

-- name: tombstone_get(session_id)$
-- When the session went, null if it never did.
SELECT time FROM tombstone WHERE session_id = :session_id;

-- == messages =================================================================================================================

-- name: message_insert(id, session_id, type, seq, time_created, data)!
-- A new message; none where the id is taken.
INSERT INTO session_message (id, session, type, seq, time_created, data)
VALUES (:id, (SELECT number FROM session WHERE id = :session_id), :type, :seq, :time_created, :data)
ON CONFLICT (id) DO NOTHING;

-- name: message_update(id, data)!
-- Another header for a message that exists.
UPDATE session_message SET data = :data WHERE id = :id;

-- name: message_get(id)^
-- One message.
SELECT id, (SELECT whose.id FROM session AS whose WHERE whose.number = session), type, seq, time_created, data
FROM session_message WHERE id = :id;

-- name: message_newest_assistant(session_id)^
-- The newest assistant.
SELECT id, :session_id, type, seq, time_created, data FROM session_message
WHERE session = (SELECT number FROM session WHERE id = :session_id)
AND type = 'assistant' ORDER BY seq DESC LIMIT 1;

-- name: message_newest_compaction(session_id)^
-- The newest compaction.
SELECT id, :session_id, type, seq, time_created, data FROM session_message
WHERE session = (SELECT number FROM session WHERE id = :session_id)
AND type = 'compaction' ORDER BY seq DESC LIMIT 1;

-- name: message_count_assistants(session_id)$
-- How many assistants there are; asked only where a session's steps are limited.
SELECT count(*) FROM session_message
WHERE session = (SELECT number FROM session WHERE id = :session_id) AND type = 'assistant';

-- name: message_page(session_id, after, limit)
-- Messages in order, after a sequence number.
SELECT id, :session_id, type, seq, time_created, data FROM session_message
WHERE session = (SELECT number FROM session WHERE id = :session_id)
AND seq > :after ORDER BY seq LIMIT :limit;

-- name: message_page_before(session_id, after, before, limit)
-- The last messages before a sequence number, the latest first.
SELECT id, :session_id, type, seq, time_created, data FROM session_message
WHERE session = (SELECT number FROM session WHERE id = :session_id)
AND seq > :after AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: message_prompts(session_id, first, last)
-- Of the users of a page of messages those that leave their prompt to the fact of their seq, with that.
SELECT message.id, kind.name, fact.data, fact.earlier, said.data, said.created
FROM session_message AS message
LEFT JOIN event AS fact ON fact.aggregate = message.session AND fact.seq = message.seq
LEFT JOIN event_type AS kind ON kind.number = fact.type
LEFT JOIN event AS said ON said.aggregate = fact.aggregate AND said.seq = fact.earlier
WHERE message.session = (SELECT number FROM session WHERE id = :session_id) AND message.seq BETWEEN :first AND :last
AND message.type = 'user' AND instr(message.data, '"prompt":') = 0;

-- name: part_put(message_id, ordinal, kind, part_id, open, data, held_by)!
-- A part, new or changed.
INSERT INTO session_part (message, ordinal, kind, part_id, open, data, held_by)
VALUES ((SELECT number FROM session_message WHERE id = :message_id), :ordinal, :kind, :part_id, :open, :data, :held_by)
ON CONFLICT (message, ordinal) DO UPDATE SET open = excluded.open, data = excluded.data, held_by = excluded.held_by;

-- name: part_last(message_id, kind, part_id)^
-- The last part of a kind and id in a message, with the fact that holds its body.
SELECT part.ordinal, part.kind, part.part_id, part.data, part.held_by, kind.name, fact.data, fact.earlier, said.data, said.created
FROM session_message AS message
JOIN session_part AS part ON part.message = message.number
LEFT JOIN event AS fact ON fact.aggregate = message.session AND fact.seq = part.held_by
LEFT JOIN event_type AS kind ON kind.number = fact.type
LEFT JOIN event AS said ON said.aggregate = fact.aggregate AND said.seq = fact.earlier
WHERE message.id = :message_id AND part.kind = :kind AND part.part_id = :part_id ORDER BY part.ordinal DESC LIMIT 1;

-- name: part_last_ordinal(message_id)$
-- The last ordinal used in a message, null if none.
SELECT ordinal FROM session_part WHERE message = (SELECT number FROM session_message WHERE id = :message_id)
ORDER BY ordinal DESC LIMIT 1;

-- name: part_open(message_id)
-- Parts not ended and calls not settled, in order; the bodies of these stand here.
SELECT ordinal, kind, part_id, data FROM session_part
WHERE message = (SELECT number FROM session_message WHERE id = :message_id) AND open = 1 ORDER BY ordinal;

-- name: part_page(session_id, first, last)
-- All parts of a page of messages, in order, each with the fact that holds its body.
SELECT message.id, part.kind, part.part_id, part.data, part.held_by, kind.name, fact.data, fact.earlier, said.data, said.created
FROM session_message AS message
JOIN session_part AS part ON part.message = message.number
LEFT JOIN event AS fact ON fact.aggregate = message.session AND fact.seq = part.held_by
LEFT JOIN event_type AS kind ON kind.number = fact.type
LEFT JOIN event AS said ON said.aggregate = fact.aggregate AND said.seq = fact.earlier
WHERE message.session = (SELECT number FROM session WHERE id = :session_id) AND message.type = 'assistant'
AND message.seq BETWEEN :first AND :last
ORDER BY message.seq, part.ordinal;

-- == inbox ====================================================================================================================

-- name: input_insert(id, session_id, kind, prompt, delivery, time_created, admitted_seq, promoted_seq, wake_pending)!
-- A new input; none where the id is taken.
INSERT INTO session_input (id, session, kind, prompt, delivery, admitted_delivery, time_created, admitted_seq, promoted_seq,
                           wake_pending)
VALUES (:id, (SELECT number FROM session WHERE id = :session_id), :kind, :prompt, :delivery, :delivery, :time_created,
        :admitted_seq, :promoted_seq, :wake_pending)
ON CONFLICT (id) DO NOTHING;

-- name: input_get(id)^
-- One input.
SELECT id, (SELECT whose.id FROM session AS whose WHERE whose.number = session), kind, prompt,
       delivery, admitted_delivery, time_created, admitted_seq, promoted_seq, wake_pending,
       execution_requests, retries, retried_by, outcome, error, settled_seq, usage
FROM session_input WHERE id = :id;

-- name: input_fact(id)^
-- The fact that admitted an input, which holds its prompt where that is long.
SELECT kind.name, fact.data, fact.earlier, said.data, said.created
FROM session_input AS input
LEFT JOIN event AS fact ON fact.aggregate = input.session AND fact.seq = input.admitted_seq
LEFT JOIN event_type AS kind ON kind.number = fact.type
LEFT JOIN event AS said ON said.aggregate = fact.aggregate AND said.seq = fact.earlier
WHERE input.id = :id;

-- name: input_retried_by(retry_id)^
-- The prompt that a retry input runs again.
SELECT id, (SELECT whose.id FROM session AS whose WHERE whose.number = session), kind, prompt,
       delivery, admitted_delivery, time_created, admitted_seq, promoted_seq, wake_pending,
       execution_requests, retries, retried_by, outcome, error, settled_seq, usage
FROM session_input WHERE retried_by = :retry_id;

-- name: input_unsettled(session_id)
-- Inputs without an outcome, in admission order.
SELECT id, :session_id, kind, prompt, delivery, admitted_delivery, time_created, admitted_seq, promoted_seq, wake_pending,
       execution_requests, retries, retried_by, outcome, error, settled_seq, usage
FROM session_input WHERE session = (SELECT number FROM session WHERE id = :session_id)
AND outcome IS NULL ORDER BY admitted_seq;

-- name: input_promote(id, promoted_seq)!
-- Into the transcript, its wake settled, where it is pending.
UPDATE session_input SET promoted_seq = :promoted_seq, wake_pending = 0
WHERE id = :id AND promoted_seq IS NULL AND outcome IS NULL;

-- name: input_request(id)!
-- Someone wants it to run.
UPDATE session_input SET wake_pending = 1 WHERE id = :id AND promoted_seq IS NULL AND outcome IS NULL;

-- name: input_count_request(id)!
-- One more stored request to run it.
UPDATE session_input SET execution_requests = execution_requests + 1 WHERE id = :id;

-- name: input_wake_pending_all(session_id)!
-- A turn started: every waiting user and retry input is promised to run; continuations have their own row.
UPDATE session_input SET wake_pending = 1
WHERE session = (SELECT number FROM session WHERE id = :session_id)
  AND outcome IS NULL AND promoted_seq IS NULL AND wake_pending = 0
  AND id NOT IN (SELECT continuation_message_id FROM session_recovery WHERE session_id = :session_id);

-- name: input_clear_wakes(session_id, before_seq)!
-- An interrupt: what was admitted before it waits for a person.
UPDATE session_input SET wake_pending = 0
WHERE session = (SELECT number FROM session WHERE id = :session_id)
  AND outcome IS NULL AND promoted_seq IS NULL AND admitted_seq < :before_seq;

-- name: input_settle(id, outcome, error, settled_seq, usage)!
-- Its outcome, if it has none, and what the turns it ran in used, where they used more than before.
UPDATE session_input SET outcome = :outcome, error = :error, settled_seq = :settled_seq, wake_pending = 0,
       usage = COALESCE(:usage, usage)
WHERE id = :id AND outcome IS NULL;

-- name: input_set_delivery(id, delivery)!
-- Deliver it otherwise.
UPDATE session_input SET delivery = :delivery WHERE id = :id AND promoted_seq IS NULL AND outcome IS NULL;

-- name: input_reopen(id, retried_by, wake_pending)!
-- Run it again: by a retry input, or as pending.
UPDATE session_input SET outcome = NULL, error = NULL, settled_seq = NULL, retried_by = :retried_by, retries = retries + 1,
       wake_pending = :wake_pending
WHERE id = :id;

-- name: input_woken_sessions()
-- Sessions with a waiting input that is wanted to run.
SELECT DISTINCT session.id FROM session_input AS input JOIN session ON session.number = input.session
WHERE input.wake_pending = 1 AND input.promoted_seq IS NULL AND input.outcome IS NULL;

-- == claims ===================================================================================================================

-- name: claim_insert(id, session_id, owner_id, purpose, phase, time_created, expires_at)!
-- Take the claim; none where the session has one.
INSERT INTO session_execution (id, session_id, owner_id, purpose, phase, time_created, expires_at)
VALUES (:id, :session_id, :owner_id, :purpose, :phase, :time_created, :expires_at)
ON CONFLICT (session_id) DO NOTHING;

-- name: claim_of_session(session_id)^
-- The claim of a session.
SELECT id, session_id, owner_id, purpose, assistant_message_id, phase, interrupted, time_created, expires_at,
       recovery_error, recovery_attempts, recovery_not_before
FROM session_execution WHERE session_id = :session_id;

-- name: claim_set_phase(id, owner_id, phase, assistant_message_id)!
-- What a crash would mean from here on.
UPDATE session_execution SET phase = :phase, assistant_message_id = :assistant_message_id
WHERE id = :id AND owner_id = :owner_id;

-- name: claim_hand_over(id, owner_id, next_id, time_created)!
-- The row goes on to the next execution without being up for grabs in between; a mark is settled by now.
UPDATE session_execution SET id = :next_id, purpose = 'turn', phase = 'safe', assistant_message_id = NULL, interrupted = 0,
       time_created = :time_created, recovery_error = NULL, recovery_attempts = 0, recovery_not_before = NULL
WHERE id = :id AND owner_id = :owner_id;

-- name: claim_adopt(id, owner_id, next_id, assistant_message_id)!
-- A parked execution takes the claim under its own id again.
UPDATE session_execution SET id = :next_id, phase = 'unknown', assistant_message_id = :assistant_message_id
WHERE id = :id AND owner_id = :owner_id;

-- name: claim_renew(id, owner_id, expires_at)!
-- A longer lease, for an owner that still holds it.
UPDATE session_execution SET expires_at = :expires_at WHERE id = :id AND owner_id = :owner_id AND expires_at > 0;

-- name: claim_delete(id, owner_id)!
-- Let go.
DELETE FROM session_execution WHERE id = :id AND owner_id = :owner_id;

-- name: claim_delete_dead(id, owner_id, expires_at)!
-- Remove a dead claim, if it is still the one that was judged dead.
DELETE FROM session_execution WHERE id = :id AND owner_id = :owner_id AND expires_at = :expires_at;

-- name: claim_mark(session_id)!
-- An interrupt was acknowledged: the owner must settle it.
UPDATE session_execution SET interrupted = 1 WHERE session_id = :session_id;

-- name: claim_expire(id, owner_id)!
-- A graceful stop: whoever comes next may recover at once.
UPDATE session_execution SET expires_at = 0 WHERE id = :id AND owner_id = :owner_id;

-- name: claim_all()
-- Every claim there is (at most one a session).
SELECT id, session_id, owner_id, purpose, assistant_message_id, phase, interrupted, time_created, expires_at,
       recovery_error, recovery_attempts, recovery_not_before
FROM session_execution ORDER BY expires_at;

-- name: claim_recovery_failed(id, error, not_before)!
-- A recovery failed and is tried again later.
UPDATE session_execution SET recovery_error = :error, recovery_attempts = recovery_attempts + 1,
       recovery_not_before = :not_before
WHERE id = :id;

-- name: claim_try_again(id)!
-- A recovery that failed is tried again now.
UPDATE session_execution SET recovery_attempts = 0, recovery_not_before = NULL WHERE id = :id;

-- name: claim_get(id)^
-- One claim.
SELECT id, session_id, owner_id, purpose, assistant_message_id, phase, interrupted, time_created, expires_at,
       recovery_error, recovery_attempts, recovery_not_before
FROM session_execution WHERE id = :id;

-- == recoveries ===============================================================================================================

-- name: recovery_insert(execution_id, session_id, assistant_message_id, continuation_message_id, phase, wake_pending, time_created)!
-- A recovered execution and its continuation; none where it is known.
INSERT INTO session_recovery (execution_id, session_id, assistant_message_id, continuation_message_id, phase, wake_pending,
                              time_created)
VALUES (:execution_id, :session_id, :assistant_message_id, :continuation_message_id, :phase, :wake_pending, :time_created)
ON CONFLICT (execution_id) DO NOTHING;

-- name: recovery_get(execution_id)^
-- One recovery.
SELECT execution_id, session_id, assistant_message_id, continuation_message_id, phase, wake_pending, wake_attempts,
       recovery_error, not_before, attempt, time_created
FROM session_recovery WHERE execution_id = :execution_id;

-- name: recovery_of_continuation(continuation_message_id)^
-- The recovery a continuation belongs to.
SELECT execution_id, session_id, assistant_message_id, continuation_message_id, phase, wake_pending, wake_attempts,
       recovery_error, not_before, attempt, time_created
FROM session_recovery WHERE continuation_message_id = :continuation_message_id;

-- name: recovery_waiting(session_id)^
-- The session's recovery whose continuation is not settled.
SELECT r.execution_id, r.session_id, r.assistant_message_id, r.continuation_message_id, r.phase, r.wake_pending, r.wake_attempts,
       r.recovery_error, r.not_before, r.attempt, r.time_created
FROM session_input AS i JOIN session_recovery AS r ON r.continuation_message_id = i.id
WHERE i.session = (SELECT number FROM session WHERE id = :session_id) AND i.outcome IS NULL AND i.promoted_seq IS NULL;

-- name: recovery_scan(now)
-- Sessions whose continuation is to be woken, most hopeful first.
SELECT session_id FROM session_recovery
WHERE wake_pending = 1 AND recovery_error IS NULL AND (not_before IS NULL OR not_before <= :now)
ORDER BY wake_attempts, time_created, execution_id;

-- name: recovery_list()
-- Recoveries whose continuation waits.
SELECT r.execution_id, r.session_id, r.assistant_message_id, r.continuation_message_id, r.phase, r.wake_pending, r.wake_attempts,
       r.recovery_error, r.not_before, r.attempt, r.time_created
FROM session_recovery AS r JOIN session_input AS i ON i.id = r.continuation_message_id
WHERE i.promoted_seq IS NULL AND i.outcome IS NULL
ORDER BY r.wake_attempts, r.time_created, r.execution_id;

-- name: recovery_arm(continuation_message_id)!
-- A person decided to go on.
UPDATE session_recovery SET wake_pending = 1, recovery_error = NULL WHERE continuation_message_id = :continuation_message_id;

-- name: recovery_settle_wake(session_id, continuation_message_id)!
-- The continuation was promoted or withdrawn.
UPDATE session_recovery SET wake_pending = 0
WHERE session_id = :session_id AND continuation_message_id = :continuation_message_id AND wake_pending = 1;

-- name: recovery_add_attempt(execution_id)!
-- One more claim taken for it.
UPDATE session_recovery SET wake_attempts = wake_attempts + 1 WHERE execution_id = :execution_id;

-- name: recovery_set_error(execution_id, error)!
-- Given up.
UPDATE session_recovery SET recovery_error = :error, wake_pending = 0 WHERE execution_id = :execution_id;

-- name: recovery_set_back_off(execution_id, not_before, attempt)!
-- The retry back-off it died in: not earlier, and the attempts already made.
UPDATE session_recovery SET not_before = :not_before, attempt = :attempt WHERE execution_id = :execution_id;

-- name: recovery_next_time(now)$
-- The earliest time a continuation may be woken.
SELECT min(not_before) FROM session_recovery WHERE wake_pending = 1 AND recovery_error IS NULL AND not_before > :now;

-- == approvals ================================================================================================================

-- name: approval_put(session_id, message_id, call_id, execution_id, time_created, deadline)!
-- A call waits for a person.
INSERT INTO session_approval (session_id, message_id, call_id, execution_id, time_created, deadline)
VALUES (:session_id, :message_id, :call_id, :execution_id, :time_created, :deadline)
ON CONFLICT (message_id, call_id) DO NOTHING;

-- name: approval_resolve(message_id, call_id, decision, by, note)!
-- The first decision wins.
UPDATE session_approval SET decision = :decision, by = :by, note = :note
WHERE message_id = :message_id AND call_id = :call_id AND decision IS NULL;

-- name: approval_find(session_id, call_id, message_id)^
-- The approval of a call id, of one assistant if it is named: another of the session may have used the same id. Else the one
-- that waits, else the newest.
SELECT session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note
FROM session_approval
WHERE session_id = :session_id AND call_id = :call_id AND (:message_id IS NULL OR message_id = :message_id)
ORDER BY CASE WHEN decision IS NULL THEN 0 ELSE 1 END, time_created DESC, message_id DESC LIMIT 1;

-- name: approval_of_message(message_id)
-- The approvals one assistant asked for.
SELECT session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note
FROM session_approval WHERE message_id = :message_id ORDER BY call_id;

-- name: approval_waiting(session_id)
-- Undecided approvals of a session.
SELECT session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note
FROM session_approval WHERE session_id = :session_id AND decision IS NULL ORDER BY time_created, call_id;

-- name: approval_list()
-- Undecided approvals of all sessions.
SELECT session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note
FROM session_approval WHERE decision IS NULL ORDER BY time_created, session_id, call_id;

-- name: approval_overdue(now)
-- Undecided approvals whose deadline has passed.
SELECT session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note
FROM session_approval WHERE decision IS NULL AND deadline <= :now;

-- name: approval_next_deadline(now)$
-- The earliest deadline still ahead.
SELECT min(deadline) FROM session_approval WHERE decision IS NULL AND deadline > :now;

-- name: approval_decided_sessions()
-- Parked sessions in which nothing waits for a decision any more.
SELECT s.id FROM session AS s WHERE s.parked = 1
  AND NOT EXISTS (SELECT 1 FROM session_approval AS a WHERE a.session_id = s.id AND a.decision IS NULL);

-- name: approval_close(session_id)!
-- No undecided approval of the session waits any longer.
DELETE FROM session_approval WHERE session_id = :session_id AND decision IS NULL;

-- == context ==================================================================================================================

-- name: epoch_get(session_id)^
-- The frozen baseline and the values it was built from.
SELECT baseline, snapshot, baseline_seq FROM session_context_epoch WHERE session_id = :session_id;

-- name: epoch_put(session_id, baseline, snapshot, baseline_seq)!
-- A new epoch, or a snapshot that moved on.
INSERT INTO session_context_epoch (session_id, baseline, snapshot, baseline_seq)
VALUES (:session_id, :baseline, :snapshot, :baseline_seq)
ON CONFLICT (session_id) DO UPDATE SET baseline = excluded.baseline, snapshot = excluded.snapshot,
       baseline_seq = excluded.baseline_seq;

-- name: epoch_delete(session_id)!
-- The next boundary opens a new epoch.
DELETE FROM session_context_epoch WHERE session_id = :session_id;

-- name: draft_put(session_id, message_id, part_id, kind, text)!
-- What a reader has seen of an open part.
INSERT INTO session_draft (session_id, message_id, part_id, kind, text)
VALUES (:session_id, :message_id, :part_id, :kind, :text)
ON CONFLICT (session_id, message_id, kind, part_id) DO UPDATE SET text = excluded.text;

-- name: draft_of_session(session_id)
-- Drafts of a session.
SELECT message_id, part_id, kind, text FROM session_draft WHERE session_id = :session_id ORDER BY message_id, kind, part_id;

-- name: draft_delete(session_id, message_id, part_id, kind)!
-- The part ended.
DELETE FROM session_draft
WHERE session_id = :session_id AND message_id = :message_id AND kind = :kind AND part_id = :part_id;

-- name: draft_clear(session_id)!
-- No part of the session is open.
DELETE FROM session_draft WHERE session_id = :session_id;

-- == content ==================================================================================================================

-- name: content_put(hash, bytes)!
-- Keep bytes under their hash.
INSERT INTO content (hash, bytes) VALUES (:hash, :bytes) ON CONFLICT (hash) DO NOTHING;

-- name: content_get(hash)$
-- The bytes of a hash.
SELECT bytes FROM content WHERE hash = :hash;

-- name: content_use(session_id, hash)!
-- A session refers to the bytes.
INSERT INTO content_use (session_id, hash) VALUES (:session_id, :hash) ON CONFLICT (session_id, hash) DO NOTHING;

-- name: content_uses(session_id)
-- What a session refers to.
SELECT hash FROM content_use WHERE session_id = :session_id ORDER BY hash;

-- name: content_lend(session_id, child_id)!
-- Another session refers to the same.
INSERT INTO content_use (session_id, hash) SELECT :child_id, hash FROM content_use WHERE session_id = :session_id;

-- name: content_unuse(session_id)!
-- A session refers to nothing any more.
DELETE FROM content_use WHERE session_id = :session_id;

-- name: content_drop_unused(hash)!
-- Forget bytes that no session refers to.
DELETE FROM content WHERE hash = :hash AND NOT EXISTS (SELECT 1 FROM content_use WHERE content_use.hash = content.hash);

-- == upkeep ===================================================================================================================

-- name: upkeep_census()^
-- How many aggregates there are, and how many events they should have.
SELECT count(*), coalesce(sum(seq + 1), 0) FROM event_sequence;

-- name: upkeep_unnumbered(limit)
-- The numbers of aggregates with events and no sequence row, each with what its first event says: from number to number by
-- the index, and not from event to event.
WITH RECURSIVE there (aggregate) AS (
    SELECT min(aggregate) FROM event
    UNION ALL
    SELECT (SELECT min(event.aggregate) FROM event WHERE event.aggregate > there.aggregate)
    FROM there WHERE there.aggregate IS NOT NULL
)
SELECT event.aggregate, min(event.seq), event.data FROM there JOIN event ON event.aggregate = there.aggregate
WHERE there.aggregate NOT IN (SELECT aggregate FROM event_sequence)
GROUP BY event.aggregate ORDER BY event.aggregate LIMIT :limit;

-- name: upkeep_unnumbered_page(aggregate, aggregate_id, after, limit)
-- Events of such an aggregate after a sequence number, under the name it goes by.
SELECT id, :aggregate_id, seq, type, created, data, metadata, position, aggregate, earlier FROM event
WHERE aggregate = :aggregate AND seq > :after ORDER BY seq LIMIT :limit;

-- name: upkeep_unlogged(limit)
-- Sessions with rows and no log.
SELECT id FROM session WHERE id NOT IN (SELECT aggregate_id FROM event_sequence) ORDER BY id LIMIT :limit;

-- name: upkeep_other_number(session_id)^
-- The number a session goes by and that of its log, where they differ.
SELECT session.number, whole.aggregate FROM session JOIN event_sequence AS whole ON whole.aggregate_id = session.id
WHERE session.id = :session_id AND session.number <> whole.aggregate;

-- name: upkeep_inputs(session_id)
-- Every input of a session.
SELECT id, :session_id, kind, prompt, delivery, admitted_delivery, time_created, admitted_seq, promoted_seq, wake_pending,
       execution_requests, retries, retried_by, outcome, error, settled_seq, usage
FROM session_input WHERE session = (SELECT number FROM session WHERE id = :session_id) ORDER BY admitted_seq, id;

-- name: upkeep_approvals(session_id)
-- Every approval of a session.
SELECT session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note
FROM session_approval WHERE session_id = :session_id;

-- name: upkeep_recoveries(session_id)
-- Every recovery of a session.
SELECT execution_id, session_id, assistant_message_id, continuation_message_id, phase, wake_pending, wake_attempts,
       recovery_error, not_before, attempt, time_created
FROM session_recovery WHERE session_id = :session_id;

-- name: upkeep_restore_session(id, held, deleting, wake_attempts)!
-- What no log knows of a session, back after a rebuild.
UPDATE session SET held = :held, deleting = :deleting, wake_attempts = :wake_attempts WHERE id = :id;

-- name: upkeep_restore_recovery(execution_id, wake_attempts, recovery_error)!
-- What no log knows of a recovery, back after a rebuild; one that was given up wakes nobody.
UPDATE session_recovery SET wake_attempts = :wake_attempts, recovery_error = :recovery_error,
       wake_pending = CASE WHEN :recovery_error IS NULL THEN wake_pending ELSE 0 END
WHERE execution_id = :execution_id;

-- name: upkeep_restore_claim(id, session_id, owner_id, purpose, assistant_message_id, phase, interrupted, time_created, expires_at, recovery_error, recovery_attempts, recovery_not_before)!
-- A claim as it was, back after a rebuild.
INSERT INTO session_execution (id, session_id, owner_id, purpose, assistant_message_id, phase, interrupted, time_created,
                               expires_at, recovery_error, recovery_attempts, recovery_not_before)
VALUES (:id, :session_id, :owner_id, :purpose, :assistant_message_id, :phase, :interrupted, :time_created, :expires_at,
        :recovery_error, :recovery_attempts, :recovery_not_before);

-- name: upkeep_clear_approvals(session_id)!
-- Gone before a rebuild, also where no session row is left that they would go with.
DELETE FROM session_approval WHERE session_id = :session_id;

-- name: upkeep_clear_recoveries(session_id)!
-- Gone before a rebuild, also where no session row is left that they would go with.
DELETE FROM session_recovery WHERE session_id = :session_id;

-- name: upkeep_clear_inputs(session_id)!
-- Gone before a rebuild, also where no session row is left that they would go with.
DELETE FROM session_input WHERE session = (SELECT aggregate FROM event_sequence WHERE aggregate_id = :session_id);

-- name: upkeep_clear_parts(session_id)!
-- Gone before a rebuild, also where no session row is left that they would go with.
DELETE FROM session_part WHERE message IN (
    SELECT number FROM session_message
    WHERE session = (SELECT aggregate FROM event_sequence WHERE aggregate_id = :session_id));

-- name: upkeep_clear_stray_parts()!
-- Gone where their message is.
DELETE FROM session_part WHERE message NOT IN (SELECT number FROM session_message);

-- name: upkeep_clear_messages(session_id)!
-- Gone before a rebuild, also where no session row is left that they would go with.
DELETE FROM session_message WHERE session = (SELECT aggregate FROM event_sequence WHERE aggregate_id = :session_id);

-- name: upkeep_clear_claims(session_id)!
-- Gone before a rebuild, also where no session row is left that they would go with.
DELETE FROM session_execution WHERE session_id = :session_id;

-- name: upkeep_put_session(number, id, agent, model, title, metadata, policy, archived, forked_from, time_created, time_updated, tokens_input, tokens_output, tokens_reasoning, tokens_cache_read, tokens_cache_write, cost, unknown_cost, unknown_tokens, turn_usage, execution_id, execution_purpose, parked)!
-- A session as its log says it is.
INSERT INTO session (number, id, agent, model, title, metadata, policy, archived, forked_from, time_created, time_updated,
                     tokens_input, tokens_output, tokens_reasoning, tokens_cache_read, tokens_cache_write, cost, unknown_cost,
                     unknown_tokens, turn_usage, execution_id, execution_purpose, parked)
VALUES (:number, :id, :agent, :model, :title, :metadata, :policy, :archived, :forked_from, :time_created, :time_updated,
        :tokens_input, :tokens_output, :tokens_reasoning, :tokens_cache_read, :tokens_cache_write, :cost, :unknown_cost,
        :unknown_tokens, :turn_usage, :execution_id, :execution_purpose, :parked);

-- name: upkeep_put_messages(id, session_id, type, seq, time_created, data)*!
-- Messages as the log says they are.
INSERT INTO session_message (id, session, type, seq, time_created, data)
VALUES (:id, (SELECT number FROM session WHERE id = :session_id), :type, :seq, :time_created, :data);

-- name: upkeep_put_parts(message_id, ordinal, kind, part_id, open, data, held_by)*!
-- Parts as the log says they are.
INSERT INTO session_part (message, ordinal, kind, part_id, open, data, held_by)
VALUES ((SELECT number FROM session_message WHERE id = :message_id), :ordinal, :kind, :part_id, :open, :data, :held_by);

-- name: upkeep_put_inputs(id, session_id, kind, prompt, delivery, admitted_delivery, time_created, admitted_seq, promoted_seq, wake_pending, execution_requests, retries, retried_by, outcome, error, settled_seq, usage)*!
-- Inputs as the log says they are.
INSERT INTO session_input (id, session, kind, prompt, delivery, admitted_delivery, time_created, admitted_seq, promoted_seq,
                           wake_pending, execution_requests, retries, retried_by, outcome, error, settled_seq, usage)
VALUES (:id, (SELECT number FROM session WHERE id = :session_id), :kind, :prompt, :delivery, :admitted_delivery,
        :time_created, :admitted_seq, :promoted_seq, :wake_pending, :execution_requests, :retries, :retried_by, :outcome, :error,
        :settled_seq, :usage);

-- name: upkeep_put_approvals(session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note)*!
-- Approvals as the log says they are.
INSERT INTO session_approval (session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note)
VALUES (:session_id, :message_id, :call_id, :execution_id, :time_created, :deadline, :decision, :by, :note);

-- name: upkeep_put_recoveries(execution_id, session_id, assistant_message_id, continuation_message_id, phase, wake_pending, not_before, attempt, time_created)*!
-- Recoveries as the log says they are.
INSERT INTO session_recovery (execution_id, session_id, assistant_message_id, continuation_message_id, phase, wake_pending,
                              not_before, attempt, time_created)
VALUES (:execution_id, :session_id, :assistant_message_id, :continuation_message_id, :phase, :wake_pending, :not_before,
        :attempt, :time_created);
