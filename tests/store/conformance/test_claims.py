"""Every verb on claims and recoveries, on every store (EX-1, EX-2, REC-4)."""

from perdure.core import events
from perdure.store.claims import ClaimRow
from perdure.store.recoveries import RecoveryRow

CLAIM = ClaimRow("exe_1", "ses_1", "own_1", "turn", None, "safe", False, 1, 100, None, 0, None)


async def test_one_owner_takes_a_session_and_the_next_is_refused(store, build):
    def work(tx):
        build.session(tx)
        return build.claim(tx), build.claim(tx, "exe_2", owner="own_2"), tx.claims.of_session("ses_1")

    assert await store.write(work) == (True, False, CLAIM)
    assert await store.read(lambda tx: tx.claims.of_session("ses_no")) is None


async def test_a_claim_answers_to_its_owner_alone_ex_2(store, build):
    def work(tx):
        build.session(tx)
        build.claim(tx)
        claims = tx.claims
        refused = [
            claims.fence("exe_1", "own_2"),
            claims.fence("exe_2", "own_1"),
            claims.hand_over("exe_1", "own_2", "exe_3", 5),
            claims.adopt("exe_1", "own_2", "exe_3", None),
            claims.renew("exe_1", "own_2", 500),
            claims.expire("exe_1", "own_2"),
            claims.delete("exe_1", "own_2"),
        ]
        claims.set_phase("exe_1", "own_2", "unknown", "msg_1")
        return refused, claims.fence("exe_1", "own_1")

    assert await store.write(work) == ([None, None, *[False] * 5], CLAIM)


async def test_a_claim_moves_on_and_is_let_go(store, build):
    def work(tx):
        build.session(tx)
        build.claim(tx)
        claims, seen = tx.claims, []
        claims.set_phase("exe_1", "own_1", "unknown", "msg_1")
        claims.mark_interrupted("ses_1")
        claims.recovery_failed("exe_1", "no", 70)
        claims.recovery_failed("exe_1", "no!", 90)
        seen.append(claims.of_session("ses_1"))
        assert claims.renew("exe_1", "own_1", 200)
        assert claims.hand_over("exe_1", "own_1", "exe_2", 50)
        seen.append(claims.of_session("ses_1"))
        assert claims.adopt("exe_2", "own_1", "exe_3", "msg_2")
        seen.append(claims.of_session("ses_1"))
        assert claims.delete("exe_3", "own_1")
        return seen, claims.of_session("ses_1")

    (marked, handed, adopted), gone = await store.write(work)
    assert marked == ClaimRow("exe_1", "ses_1", "own_1", "turn", "msg_1", "unknown", True, 1, 100, "no!", 2, 90)
    assert handed == ClaimRow("exe_2", "ses_1", "own_1", "turn", None, "safe", False, 50, 200, None, 0, None)
    assert (adopted.id, adopted.phase, adopted.assistant_message_id) == ("exe_3", "unknown", "msg_2")
    assert gone is None


async def test_an_expired_claim_is_not_renewed_and_a_dead_one_goes_if_unchanged(store, build):
    def work(tx):
        build.session(tx)
        build.claim(tx)
        judged = tx.claims.of_session("ses_1")
        assert tx.claims.expire("exe_1", "own_1")
        renewed = tx.claims.renew("exe_1", "own_1", 500)
        changed = tx.claims.delete_dead(judged)
        return renewed, changed, tx.claims.delete_dead(tx.claims.of_session("ses_1"))

    assert await store.write(work) == (False, False, True)


async def test_all_claims_are_listed_the_earliest_expiry_first(store, build):
    def work(tx):
        for number, expiry in enumerate((30, 10, 20)):
            build.session(tx, f"ses_{number}")
            build.claim(tx, f"exe_{number}", f"ses_{number}", expires_at=expiry)
        return [row.id for row in tx.claims.all()]

    assert await store.write(work) == ["exe_1", "exe_2", "exe_0"]


def recover(tx, build, number, *, time=1, armed=True, session_id="ses_1"):
    build.input(tx, f"msg_c{number}", session_id, seq=number, kind="synthetic")
    recovered = events.StepRecovered(session_id=session_id, execution_id=f"exe_{number}", phase="unknown", armed=armed)
    return tx.recoveries.insert(recovered, f"msg_c{number}", time)


async def test_a_recovery_comes_back_and_is_known_once(store, build):
    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        build.input(tx, "msg_c", kind="synthetic")
        recovered = events.StepRecovered(
            session_id="ses_1", execution_id="exe_1", phase="unknown", assistant_message_id="msg_1", armed=False
        )
        made = tx.recoveries.insert(recovered, "msg_c", 5), tx.recoveries.insert(recovered, "msg_c", 6)
        found = tx.recoveries
        return made, [found.get("exe_1"), found.of_continuation("msg_c"), found.waiting("ses_1"), *found.list()]

    made, rows = await store.write(work)
    assert made == (True, False)
    assert rows == [RecoveryRow("exe_1", "ses_1", "msg_1", "msg_c", "unknown", False, 0, None, None, 0, 5)] * 4
    assert await store.read(
        lambda tx: (tx.recoveries.get("no"), tx.recoveries.of_continuation("no"), tx.recoveries.waiting("no"))
    ) == (None, None, None)


async def test_the_scan_gives_the_most_hopeful_first_rec_4(store, build):
    def work(tx):
        for number in range(1, 7):
            build.session(tx, f"ses_{number}")
            recover(tx, build, number, time=10 - number, armed=number != 6, session_id=f"ses_{number}")
        tx.recoveries.add_attempt("exe_5")
        tx.recoveries.set_back_off("exe_4", 50, 2)
        tx.recoveries.set_error("exe_3", "given up")
        seen = [
            tx.recoveries.scan(10),
            tx.recoveries.next_time(10),
            tx.recoveries.scan(50),
            tx.recoveries.next_time(50),
        ]
        tx.recoveries.arm("msg_c3")
        tx.recoveries.arm("msg_c6")
        return seen, tx.recoveries.scan(50), tx.recoveries.get("exe_4"), tx.recoveries.get("exe_3")

    seen, armed, backed_off, rearmed = await store.write(work)
    assert seen == [["ses_2", "ses_1", "ses_5"], 50, ["ses_4", "ses_2", "ses_1", "ses_5"], None]
    assert armed == ["ses_6", "ses_4", "ses_3", "ses_2", "ses_1", "ses_5"]
    assert (backed_off.not_before, backed_off.attempt) == (50, 2)
    assert (rearmed.wake_pending, rearmed.recovery_error) == (True, None)


async def test_a_settled_wake_is_no_longer_scanned_and_a_promoted_one_no_longer_waits(store, build):
    def work(tx):
        build.session(tx)
        recover(tx, build, 1)
        tx.recoveries.settle_wake("ses_1", "msg_c1")
        scanned, waiting = tx.recoveries.scan(99), tx.recoveries.waiting("ses_1")
        tx.inbox.promote("msg_c1", 5)
        return scanned, waiting.wake_pending, tx.recoveries.waiting("ses_1"), tx.recoveries.list()

    assert await store.write(work) == ([], False, None, [])
