"""JSON both ways: what is left out, what is refused, when two texts are equal, and the registry of definitions."""

import dataclasses
import importlib
import itertools
import types
import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors
from perdure.core import codec, columns, events, messages
from perdure.core.value import Value, names

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def declared(version, *fields, event_type="test.thing"):
    """A durable definition made on the spot."""
    made = type("Made", (), {"__annotations__": {"thread": str, **dict.fromkeys(fields, str)}, "__module__": __name__})
    return events.durable(event_type, version=version, aggregate="thread")(made)


BEGINNINGS = (
    "",
    " ",
    "{",
    "{}",
    '{"session_id":"a"',
    '{"session_id":"a"}',
    '{"session_id":"a",',
    '{"session_id":"a","',
    '{"b":1}',
)


@given(begins=st.sampled_from(BEGINNINGS), ends=st.text(max_size=6), session_id=st.sampled_from(["a", "", 'a"', "b"]))
def test_whatever_is_stored_without_a_session_id_comes_back_to_the_last_character_db(begins, ends, session_id):
    text = begins + ends
    assert columns.with_session(columns.without_session(text, session_id), session_id) == text


ASSISTANTS = (
    "",
    "{}",
    '{"assistant_message_id":"',
    '{"assistant_message_id":""',
    '{"assistant_message_id":"a"',
    '{"assistant_message_id":"a"}',
    '{"assistant_message_id":"a","',
)


@given(begins=st.sampled_from(ASSISTANTS), ends=st.text(max_size=6))
def test_whatever_is_stored_without_its_assistant_comes_back_to_the_last_character_db(begins, ends):
    text = begins + ends
    whole, head = columns.with_session(text, "s"), columns.head("s", text)
    rest = columns.without(whole, head) if head else None
    assert rest is None or columns.with_earlier(rest, "t.1", "s", text, 7) == whole


EARLIER = '{"assistant_message_id":"a","agent":"main"}'
ADMITTED = '{"message_id":"m","kind":"user","prompt":{"parts":[]},"delivery":"steer","request_execution":false}'


@pytest.mark.parametrize(
    ("data", "kind", "earlier"),
    [
        ("{}", "t.1", None),
        ("{}", "t.1", ADMITTED),
        ("{}", "t.1", ""),
        (" {}", "t.1", EARLIER),
        ("", "t.1", EARLIER),
        ("{}", columns.PROMOTED, None),
        ("{}", columns.PROMOTED, EARLIER),
        ('{"message_id":"m"}', columns.PROMOTED, ADMITTED),
        ("{}", columns.PROMOTED, ADMITTED.replace("false", "0")),
    ],
)
def test_a_fact_whose_earlier_fact_does_not_say_the_rest_is_no_json_db(data, kind, earlier):
    with pytest.raises(errors.Undecodable):
        codec.load(columns.with_earlier(data, kind, "s", earlier, 7), dict)


@pytest.mark.parametrize("text", ["", 'it says ,"request_execution":true} here', "{}", '"'])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_prompt_promoted_as_it_was_admitted_is_told_by_that_fact_alone_db(text, wanted):
    same = {
        "session_id": "s",
        "message_id": "m",
        "kind": "user",
        "prompt": messages.text_prompt(text),
        "delivery": "queue",
    }
    admitted = columns.without_session(codec.dump(events.PromptAdmitted(**same, request_execution=wanted)), "s")
    promoted = codec.dump(events.PromptPromoted(**same, time_created=7))
    assert columns.with_earlier("{}", columns.PROMOTED, "s", admitted, 7) == promoted


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 10])))
def test_the_latest_is_the_highest_version_in_any_order_of_declaration_log_11(order):
    classes = {version: declared(version) for version in order}
    registry = codec.Registry(classes.values())
    assert registry.latest("test.thing") is classes[10]
    assert [type(registry.decode(f"test.thing.{version}", '{"thread":"a"}')) for version in order] == [
        classes[version] for version in order
    ]


def test_a_duplicate_definition_is_an_error_log_11():
    with pytest.raises(errors.Defect):
        codec.Registry([declared(1), declared(1)])
    with pytest.raises(errors.Defect):
        codec.Registry([declared(2)], [(declared(2), lambda old: old)])


def test_a_duplicate_among_the_sessions_facts_is_an_error_at_import_log_11(monkeypatch):
    twice = events.Fact | declared(1, event_type="session.created")
    monkeypatch.setattr(events, "Fact", twice)
    before = dict(vars(codec))
    try:
        with pytest.raises(errors.Defect, match=r"session\.created\.1 is defined twice"):
            importlib.reload(codec)
    finally:
        vars(codec).update(before)


def test_only_what_was_declared_durable_can_be_defined_log_11():
    for cls in (events.TextDelta, messages.Tokens, int):
        with pytest.raises(errors.Defect):
            codec.Registry([cls])


def test_an_old_event_is_lifted_step_by_step_to_the_latest_log_11():
    one, two, three = declared(1, "a"), declared(2, "b"), declared(3, "c")
    registry = codec.Registry(
        [three],
        [
            (two, lambda old: three(thread=old.thread, c=old.b + "3")),
            (one, lambda old: two(thread=old.thread, b=old.a + "2")),
        ],
    )
    stored = registry.decode("test.thing.1", '{"thread":"t","a":"1"}')
    assert stored == one(thread="t", a="1")
    assert registry.upcast(stored) == three(thread="t", c="123")
    assert registry.upcast(three(thread="t", c="x")) == three(thread="t", c="x")


def test_an_old_version_without_a_step_is_a_defect_log_11():
    registry = codec.Registry([declared(2), declared(1)])
    with pytest.raises(errors.Defect):
        registry.upcast(registry.decode("test.thing.1", '{"thread":"a"}'))


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "1",
        "session.created",
        "session.created.",
        "session.created.01",
        "session.created.+1",
        "session.created.1.1",
        "session.created.\u0661",
        "x.1",
        "session.created." + "1" * 5_000,
    ],
)
def test_a_type_that_is_not_defined_is_refused_by_name_log_11(name):
    registry = codec.session_registry()
    assert name not in registry
    with pytest.raises(errors.InvalidDurableEvent):
        registry.decode(name, "{}")


def test_ephemeral_types_are_no_durable_ones_log_11():
    durable = {definition.event_type for definition in codec.session_registry()}
    ephemeral = [signal.event_type for signal in typing.get_args(events.Signal)]
    assert len(ephemeral) == len(set(ephemeral))
    assert durable & set(ephemeral) == set()


def fields_of(cls):
    return msgspec.structs.fields(cls) if issubclass(cls, Value) else dataclasses.fields(cls)


def values_below(*roots):
    """Every class of values that a value of these may hold, and they themselves."""
    found, todo = set(), list(roots)
    while todo:
        one = todo.pop()
        if isinstance(one, type) and names(one) and one not in found:
            found.add(one)
            todo += typing.get_type_hints(one).values()
        todo += typing.get_args(one)
    return found


def test_every_optional_field_of_facts_signals_and_messages_is_none_by_default_log_11():
    roots = values_below(events.Fact, events.Signal, messages.Message, messages.Part)
    assert {events.SessionCreated, messages.Failure, messages.Assistant, messages.Pending, events.Policy} < roots
    wrong = [
        f"{cls.__name__}.{field.name}"
        for cls in roots
        for field in fields_of(cls)
        if type(None) in typing.get_args(typing.get_type_hints(cls)[field.name]) and field.default is not None
    ]
    assert wrong == []


def test_a_field_that_is_none_is_left_out_and_comes_back_as_none():
    fact = events.ToolFailed(
        session_id="s", assistant_message_id="m", call_id="c", error=messages.Failure("x", "y"), content=({"a": None},)
    )
    text = codec.dump(fact)
    assert text == (
        '{"session_id":"s","assistant_message_id":"m","call_id":"c","error":{"type":"x","message":"y"},'
        '"content":[{"a":null}]}'
    )
    assert codec.load(text, events.ToolFailed) == fact


def test_a_field_that_a_newer_program_added_is_passed_over():
    assert codec.load('{"session_id":"s","later":{"x":[1]}}', events.SessionDeleted) == events.SessionDeleted(
        session_id="s"
    )


@given(JSON)
def test_json_comes_back_as_it_went(value):
    assert codec.load(codec.dump({"v": value}), dict) == {"v": value}


@given(JSON, st.randoms())
def test_equality_of_texts_ignores_order_and_spacing_and_nothing_else_log_22(value, random):
    def shuffled(one):
        if isinstance(one, dict):
            items = list(one.items())
            random.shuffle(items)
            return {key: shuffled(item) for key, item in items}
        return [shuffled(item) for item in one] if isinstance(one, list) else one

    text = codec.dump(value)
    assert codec.same_json(text, codec.dump(shuffled(value)))
    assert codec.same_json(text, f" {text}\n")
    assert not codec.same_json(text, codec.dump([value]))


@pytest.mark.parametrize(
    ("left", "right"),
    [("1", "1.0"), ("1", "true"), ("0", "false"), ("0", "null"), ('""', "null"), ("[]", "{}"), ("0.0", "-0.0"),
     ("9007199254740993", "9007199254740992"), ("9007199254740993", "9007199254740993.0"), ("[1,2]", "[2,1]"),
     ('"a"', '"A"'), ('"\\u00e9"', '"e\\u0301"'), ('{"a":null}', "{}"), ("{", "{}"), ("", "null"), ("NaN", "nan")],
)  # fmt: skip
def test_values_that_look_alike_are_not_equal_log_22(left, right):
    assert not codec.same_json(left, right)
    assert not codec.same_json(right, left)
    assert codec.same_json(left, left)


@pytest.mark.parametrize("text", ["[" * 100_000, '"\udc80"', "[" * 100_000 + "]" * 100_000])
def test_what_cannot_be_read_equals_only_itself_log_22(text):
    assert codec.same_json(text, text)
    assert not codec.same_json(text, text + " ")


@pytest.mark.parametrize(
    "text", ["", "x", "[]", '{"session_id":1}', "[" * 100_000, '"\udc80"', '{"session_id":"\\ud800"}']
)
def test_what_cannot_be_decoded_is_a_typed_error(text):
    with pytest.raises(errors.Undecodable):
        codec.load(text, events.SessionDeleted)


def deep():
    value = {}
    for _ in range(50_000):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    "make", [lambda: "\ud800", lambda: {"a": "\udfff"}, object, lambda: {"a": {1: 2, "b": 3}.keys()}, deep]
)
def test_what_json_cannot_hold_is_the_callers_error_sec_2(make):
    with pytest.raises(errors.InvalidInput):
        codec.dump(make())


def test_session_facts_are_all_in_the_registry_log_11():
    assert isinstance(events.Fact, types.UnionType)
    assert set(codec.session_registry()) >= set(typing.get_args(events.Fact))


AT = messages.MessageTime(7, 9)
FAILED = messages.Failure("unknown", "gone")
PARTS = (
    messages.TextPart('t"\\', "said", ended=True),
    messages.ReasoningPart("é", "thought", {"x": {}}, ended=True),
    messages.ToolPart("c\n\u2028", "go", messages.Pending('{"a'), messages.PartTime(7), "read", provider_executed=True),
    messages.ToolPart("c", "go", messages.Completed({"effect": "write"}, None, ()), messages.PartTime(7, 8, 9)),
    messages.TextPart("t"),
    messages.ReasoningPart("t"),
    messages.ToolPart("c", "go", messages.Running({}, {"x": None}, ({"text": "é"},)), messages.PartTime(7, 8)),
    messages.ToolPart(
        "c", "go", messages.Errored({}, FAILED), messages.PartTime(7), approval=messages.Approval({}, 9, "deny", "by")
    ),
)
HEADS = (
    messages.User("m", 3, messages.MessageTime(7), messages.text_prompt("hi"), "steer"),
    messages.Assistant('m"', 3, AT, "main", "scripted:x"),
    messages.Assistant("m", 3, messages.MessageTime(7), "main", "scripted:x"),
    messages.Synthetic("m", 3, messages.MessageTime(7), "go on"),
    messages.Compaction("m", 3, AT, "auto"),
    messages.Assistant(
        "m", 3, AT, "main", "x", PARTS, "stop", messages.Tokens(1), 0, FAILED, messages.Retry(2, 9, FAILED)
    ),
    messages.System("m", 3, messages.MessageTime(7), "time"),
    messages.AgentSwitched("m", 3, messages.MessageTime(7), "other"),
    messages.ModelSwitched("m", 3, messages.MessageTime(7), "new", "old"),
    messages.Compaction("m", 3, AT, "manual", "completed", "all", "m", error=FAILED),
)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_s_row_leaves_out_its_id_and_what_most_calls_are_db(part):
    kind, part_id = messages.part_key(part)
    row = columns.dump_part(part)
    assert not {"id", "call_id"} & set(codec.load_object(row))
    assert ("effect" in codec.load_object(row)) == (part is PARTS[2])
    whole = codec.load_object(codec.dump_part(part))
    usual = {("effect", "write"), ("provider_executed", False), ("id", part_id), ("call_id", part_id)}
    kept = {name: one for name, one in whole.items() if isinstance(one, dict) or (name, one) not in usual}
    assert row == codec.dump(kept), "to the byte"
    assert columns.load_part("s", "m", kind, part_id, row) == part


@pytest.mark.parametrize("message", HEADS)
def test_a_message_s_row_leaves_out_what_stands_in_columns_db(message):
    kind, row = codec.message_type(message), columns.dump_message(message)
    held = codec.load_object(row)
    assert not {"id", "seq", "parts"} & set(held)
    assert held["time"] == ({"completed": 9} if message.time == AT else {})
    whole = codec.load_object(codec.dump_message(message))
    del whole["id"], whole["seq"], whole["time"]["created"]
    assert row == codec.dump(whole), "to the byte"
    bare = codec.with_parts(message, ()) if kind == "assistant" else message
    assert columns.load_message("s", message.id, kind, row, seq=3, created=7) == bare


@pytest.mark.parametrize("damaged", ["", "{}", "[]", '{"text"', '{"time":[]}', '{"id":"x","time":{}}', "{,}"])
def test_a_row_that_is_none_never_reads_as_empty_msg_8(damaged):
    for kind in ("text", "tool"):
        with pytest.raises(errors.MessageUndecodable, match="m of session s"):
            columns.load_part("s", "m", kind, "p", damaged)
    with pytest.raises(errors.MessageUndecodable, match="m of session s"):
        columns.load_message("s", "m", "synthetic", damaged, seq=3, created=7)


def test_a_row_whose_data_names_another_than_its_columns_is_refused_msg_8():
    with pytest.raises(errors.MessageUndecodable, match="different messages"):
        columns.load_message("s", "m", "synthetic", '{"time":{},"text":"go","id":"x"}', seq=3, created=7)
    with pytest.raises(errors.MessageUndecodable, match="different messages"):
        columns.load_message("s", "m", "synthetic", '{"time":{},"text":"go","seq":4}', seq=3, created=7)
    with pytest.raises(errors.MessageUndecodable, match="text p names another part"):
        columns.load_part("s", "m", "text", "p", '{"text":"go","id":"x"}')


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (None, None),
        (messages.Usage(), "{}"),
        (messages.Usage(unknown_cost=2, unknown_tokens=2), '{"unknown_cost":2,"unknown_tokens":2}'),
        (messages.Usage(messages.Tokens(1, 0, 3), 10), '{"tokens":{"input":1,"reasoning":3},"cost":10}'),
        (messages.Usage(messages.Tokens(1, 2, 3, 4, 5), 6, 7, 8), None),
    ],
)
def test_usage_stands_in_a_row_without_what_is_0_and_comes_back_whole(usage, text):
    held = columns.dump_usage(usage)
    assert text is None or held == text
    assert held is None if usage is None else codec.load(held, messages.Usage) == usage


def test_a_fact_with_a_base_class_is_an_error_at_import_log_11():
    class Base:
        thread: str

    class Noted(Base):
        text: str = ""

    for declare in (events.durable("test.noted", aggregate="thread"), events.ephemeral("test.noted")):
        with pytest.raises(TypeError, match="Noted has a base class"):
            declare(Noted)
