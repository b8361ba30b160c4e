-- The log, its projections and the operational rows. JSON is TEXT, flags are 0/1, times are epoch milliseconds. Tables of small rows
-- are their own index (WITHOUT ROWID); those that hold texts are not, since there every row over a quarter of a page spills.
-- A check of three values and more says OR, not IN: for that, each statement that writes a row would make a table of them first.

-- aggregate: the number by which events name theirs; AUTOINCREMENT, so that a removed aggregate never lends its number to another.
CREATE TABLE event_sequence (
    aggregate    INTEGER PRIMARY KEY AUTOINCREMENT,
    aggregate_id TEXT NOT NULL UNIQUE,
    seq          INTEGER NOT NULL CHECK (seq >= 0),
    owner_id     TEXT
);

-- What types of events there are. An index below is about the first, statements about both.
CREATE TABLE event_type (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
);
INSERT INTO event_type (number, name) VALUES
    (1, 'session.execution.interrupt_requested.1'),
    (2, 'session.step.started.1');

-- position: commit order over all aggregates; AUTOINCREMENT, so that a removed tail never lends its numbers again.
-- id: null where none was chosen; aggregate and seq are the event's id then.
-- earlier: the seq of the fact of the same log that says what data leaves out; null where data says it all.
-- proof: random, of a unit's first event; by it a writer knows a commit that it got no answer to.
CREATE TABLE event (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT,
    aggregate    INTEGER NOT NULL,
    seq          INTEGER NOT NULL CHECK (seq >= 0),
    type         INTEGER NOT NULL REFERENCES event_type (number),
    created      INTEGER NOT NULL,
    data         TEXT NOT NULL,
    metadata     TEXT,
    earlier      INTEGER CHECK (earlier < seq),
    proof        INTEGER,
    UNIQUE (aggregate, seq)
);
CREATE UNIQUE INDEX event_chosen_id ON event (id) WHERE id IS NOT NULL;

-- Whether an interrupt was asked for is looked up for every session that waits, however long its log is.
CREATE INDEX event_interrupts ON event (aggregate, seq) WHERE type = 1;

CREATE TRIGGER event_is_append_only_update BEFORE UPDATE ON event
BEGIN
    SELECT RAISE(ABORT, 'event is append-only');
END;

CREATE TRIGGER event_is_append_only_delete BEFORE DELETE ON event
WHEN EXISTS (SELECT 1 FROM event_sequence WHERE aggregate = OLD.aggregate)
BEGIN
    SELECT RAISE(ABORT, 'event is append-only');
END;

-- Events with their names, and with the fact that each leaves something to.
CREATE VIEW event_log AS
SELECT event.position, event.id, whole.aggregate_id, event.seq, coalesce(kind.name, event.type) AS type, event.created, event.data,
       event.metadata, event.earlier, said.data AS earlier_data, said.created AS earlier_created
FROM event_sequence AS whole JOIN event USING (aggregate)
LEFT JOIN event_type AS kind ON kind.number = event.type
LEFT JOIN event AS said ON said.aggregate = event.aggregate AND said.seq = event.earlier;

-- number: that by which events name the session's log; messages and inputs name their session by it.
CREATE TABLE session (
    number             INTEGER PRIMARY KEY,
    id                 TEXT NOT NULL UNIQUE,
    agent              TEXT NOT NULL,
    model              TEXT,
    title              TEXT,
    metadata           TEXT,
    policy             TEXT NOT NULL,
    archived           INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)),
    forked_from        TEXT,
    time_created       INTEGER NOT NULL,
    time_updated       INTEGER NOT NULL,
    tokens_input       INTEGER NOT NULL DEFAULT 0,
    tokens_output      INTEGER NOT NULL DEFAULT 0,
    tokens_reasoning   INTEGER NOT NULL DEFAULT 0,
    tokens_cache_read  INTEGER NOT NULL DEFAULT 0,
    tokens_cache_write INTEGER NOT NULL DEFAULT 0,
    cost               INTEGER NOT NULL DEFAULT 0,
    unknown_cost       INTEGER NOT NULL DEFAULT 0,
    unknown_tokens     INTEGER NOT NULL DEFAULT 0,
    turn_usage         TEXT,
    execution_id       TEXT,
    execution_purpose  TEXT CHECK (execution_purpose IN ('turn', 'compaction')),
    parked             INTEGER NOT NULL DEFAULT 0 CHECK (parked IN (0, 1)),
    held               INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    deleting           INTEGER NOT NULL DEFAULT 0 CHECK (deleting IN (0, 1)),
    wake_attempts      INTEGER NOT NULL DEFAULT 0 CHECK (wake_attempts BETWEEN 0 AND 9007199254740991),
    CHECK ((execution_id IS NULL) = (execution_purpose IS NULL)),
    CHECK (parked = 0 OR execution_id IS NOT NULL)
);
CREATE INDEX session_by_time ON session (time_created, id);
CREATE INDEX session_parked ON session (id) WHERE parked = 1;
CREATE INDEX session_deleting ON session (id) WHERE deleting = 1;

-- number: by which the parts of a message name it; AUTOINCREMENT, so that parts that were lost never become another message's.
-- data begins with the message's time, but for that of its creation, and leaves out what else stands in columns; a user's leaves a
-- long prompt to the session's fact of its seq.
CREATE TABLE session_message (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    session      INTEGER NOT NULL REFERENCES session (number) ON DELETE CASCADE,
    type         TEXT NOT NULL CHECK (
        type = 'user' OR type = 'synthetic' OR type = 'system' OR type = 'assistant'
        OR type = 'agent_switched' OR type = 'model_switched' OR type = 'compaction'),
    seq          INTEGER NOT NULL,
    time_created INTEGER NOT NULL,
    data         TEXT NOT NULL,
    UNIQUE (session, seq)
);
CREATE INDEX session_message_assistants ON session_message (session, seq) WHERE type = 'assistant';
CREATE INDEX session_message_compactions ON session_message (session, seq) WHERE type = 'compaction';

-- part_id: the call id of a tool part, else the text or reasoning id; a call id may come twice in one message, the last one counts.
-- held_by: the seq of the session's fact in which the part's body stands; null where it stands in data.
CREATE TABLE session_part (
    message INTEGER NOT NULL REFERENCES session_message (number) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    kind    TEXT NOT NULL CHECK (kind = 'text' OR kind = 'reasoning' OR kind = 'tool'),
    part_id TEXT NOT NULL,
    open    INTEGER NOT NULL CHECK (open IN (0, 1)),
    data    TEXT NOT NULL,
    held_by INTEGER CHECK (held_by IS NULL OR open = 0),
    PRIMARY KEY (message, ordinal)
);
CREATE INDEX session_part_by_id ON session_part (message, kind, part_id, ordinal);

-- prompt: empty where it is long and stands in the session's fact at admitted_seq.
CREATE TABLE session_input (
    id                 TEXT PRIMARY KEY,
    session            INTEGER NOT NULL REFERENCES session (number) ON DELETE CASCADE,
    kind               TEXT NOT NULL CHECK (kind IN ('user', 'synthetic')),
    prompt             TEXT NOT NULL,
    delivery           TEXT NOT NULL CHECK (delivery IN ('steer', 'queue')),
    admitted_delivery  TEXT NOT NULL CHECK (admitted_delivery IN ('steer', 'queue')),
    time_created       INTEGER NOT NULL,
    admitted_seq       INTEGER NOT NULL,
    promoted_seq       INTEGER,
    wake_pending       INTEGER NOT NULL DEFAULT 0 CHECK (wake_pending IN (0, 1)),
    execution_requests INTEGER NOT NULL DEFAULT 0,
    retries            INTEGER NOT NULL DEFAULT 0,
    retried_by         TEXT,
    outcome            TEXT CHECK (outcome = 'succeeded' OR outcome = 'failed' OR outcome = 'interrupted'
        OR outcome = 'superseded' OR outcome = 'cancelled'),
    error              TEXT,
    settled_seq        INTEGER,
    usage              TEXT,
    UNIQUE (session, admitted_seq),
    CHECK ((outcome IS NULL) = (settled_seq IS NULL)),
    CHECK (wake_pending = 0 OR (promoted_seq IS NULL AND outcome IS NULL))
);
CREATE UNIQUE INDEX session_input_retries ON session_input (retried_by) WHERE retried_by IS NOT NULL;
CREATE INDEX session_input_unsettled ON session_input (session, admitted_seq) WHERE outcome IS NULL;
CREATE INDEX session_input_waiting ON session_input (wake_pending, session) WHERE promoted_seq IS NULL AND outcome IS NULL;

-- The claim: exactly one owner executes a session. interrupted: the mark an owner must settle before anything else.
CREATE TABLE session_execution (
    id                   TEXT PRIMARY KEY,
    session_id           TEXT NOT NULL UNIQUE REFERENCES session (id) ON DELETE CASCADE,
    owner_id             TEXT NOT NULL,
    purpose              TEXT NOT NULL CHECK (purpose IN ('turn', 'compaction')),
    assistant_message_id TEXT,
    phase                TEXT NOT NULL CHECK (phase = 'ready' OR phase = 'safe' OR phase = 'unknown' OR phase = 'continue'),
    interrupted          INTEGER NOT NULL DEFAULT 0 CHECK (interrupted IN (0, 1)),
    time_created         INTEGER NOT NULL,
    expires_at           INTEGER NOT NULL,
    recovery_error       TEXT,
    recovery_attempts    INTEGER NOT NULL DEFAULT 0,
    recovery_not_before  INTEGER
) WITHOUT ROWID;

CREATE TABLE session_recovery (
    execution_id            TEXT PRIMARY KEY,
    session_id              TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    assistant_message_id    TEXT REFERENCES session_message (id) DEFERRABLE INITIALLY DEFERRED,
    continuation_message_id TEXT NOT NULL UNIQUE REFERENCES session_input (id) DEFERRABLE INITIALLY DEFERRED,
    phase                   TEXT NOT NULL CHECK (phase = 'ready' OR phase = 'safe' OR phase = 'unknown' OR phase = 'continue'),
    wake_pending            INTEGER NOT NULL DEFAULT 1 CHECK (wake_pending IN (0, 1)),
    wake_attempts           INTEGER NOT NULL DEFAULT 0 CHECK (wake_attempts BETWEEN 0 AND 9007199254740991),
    recovery_error          TEXT,
    not_before              INTEGER,
    attempt                 INTEGER NOT NULL DEFAULT 0,
    time_created            INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX session_recovery_scan ON session_recovery (wake_pending, recovery_error, wake_attempts, time_created, execution_id);
CREATE INDEX session_recovery_by_session ON session_recovery (session_id);
CREATE INDEX session_recovery_by_message ON session_recovery (assistant_message_id);

CREATE TABLE session_approval (
    session_id   TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_id   TEXT NOT NULL REFERENCES session_message (id) ON DELETE CASCADE,
    call_id      TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    time_created INTEGER NOT NULL,
    deadline     INTEGER,
    decision     TEXT CHECK (decision IN ('approve', 'deny')),
    by           TEXT,
    note         TEXT,
    PRIMARY KEY (message_id, call_id)
) WITHOUT ROWID;
CREATE INDEX session_approval_by_session ON session_approval (session_id, call_id);
CREATE INDEX session_approval_waiting ON session_approval (deadline) WHERE decision IS NULL;

CREATE TABLE session_context_epoch (
    session_id   TEXT PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    baseline     TEXT NOT NULL,
    snapshot     TEXT NOT NULL,
    baseline_seq INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE session_draft (
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    part_id    TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind = 'text' OR kind = 'reasoning' OR kind = 'tool'),
    text       TEXT NOT NULL,
    PRIMARY KEY (session_id, message_id, kind, part_id)
);

CREATE TABLE content (
    hash  TEXT PRIMARY KEY,
    bytes BLOB NOT NULL
);

-- Which sessions use which bytes: what no session uses any more goes with the last that did.
CREATE TABLE content_use (
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    hash       TEXT NOT NULL REFERENCES content (hash),
    PRIMARY KEY (session_id, hash)
) WITHOUT ROWID;
CREATE INDEX content_use_by_hash ON content_use (hash);

CREATE TABLE tombstone (
    session_id TEXT PRIMARY KEY,
    time       INTEGER NOT NULL
) WITHOUT ROWID;
