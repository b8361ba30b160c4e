"""Files below a root, and no way out of it: real files, real links."""

import os
import threading

import pytest

from perdure import ToolContext, ToolError, errors, local_toolset
from perdure.tools.function import Bound

CONTEXT = ToolContext("ses", "call", owner_id="own_test")


class Tools:
    """The toolset of a directory, called as the runner calls it."""

    def __init__(self, root):
        self.root = root
        self.bound = {one.name: Bound(one) for one in local_toolset(root)}

    def __call__(self, name, **given):
        bound = self.bound[name]
        return bound.tool.function(**bound.arguments(given, CONTEXT))


@pytest.fixture
def tools(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    return Tools(root)


def test_the_effects_say_what_repeating_would_mean(tools):
    assert {name: bound.tool.effect for name, bound in tools.bound.items()} == {
        "read_file": "read",
        "list_files": "read",
        "search_files": "read",
        "write_file": "write",
        "edit_file": "write",
        "shell": "write",
    }
    assert all(bound.spec.description for bound in tools.bound.values())
    described = [about for bound in tools.bound.values() for about in bound.spec.parameters["properties"].values()]
    assert all(about.get("description") for about in described)


def test_without_a_shell_there_is_none_and_a_missing_root_is_a_configuration_error(tmp_path):
    assert "shell" not in {one.name for one in local_toolset(tmp_path, shell=False)}
    with pytest.raises(errors.ConfigError):
        local_toolset(tmp_path / "missing")


# -- no way out --------------------------------------------------------------------------------------------------------------

OUTSIDE = [
    "../secret",
    "a/../../secret",
    "..",
    "/etc/passwd",
    "~/secret",
    "link",
    "dir-link/secret",
    "up/secret",
    "a\0b",
]
CALLS = [
    ("read_file", {}),
    ("write_file", {"content": "mine"}),
    ("edit_file", {"old": "secret", "new": "mine"}),
    ("list_files", {}),
    ("search_files", {"pattern": "."}),
]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(("name", "given"), CALLS, ids=[name for name, _ in CALLS])
def test_no_path_leads_out_of_the_root(tools, path, name, given):
    secret = tools.root.parent / "secret"
    secret.write_text("secret")
    (tools.root / "link").symlink_to(secret)
    (tools.root / "dir-link").symlink_to(tools.root.parent)
    (tools.root / "up").symlink_to("..")
    with pytest.raises(ToolError):
        tools(name, path=path, **given)
    assert secret.read_text() == "secret"
    assert (tools.root / "link").is_symlink()


def test_a_link_inside_the_root_is_refused_in_words(tools):
    (tools.root / "real").write_text("x")
    (tools.root / "link").symlink_to("real")
    with pytest.raises(ToolError, match="link is a symbolic link"):
        tools("read_file", path="link")
    assert "symbolic link, not followed" in tools("list_files")


def test_a_directory_swapped_for_a_link_at_any_moment_leads_nowhere(tools):
    outside = tools.root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    inside = tools.root / "dir"
    inside.mkdir()
    (inside / "file").write_text("fine")
    aside, stop = tools.root / "aside", threading.Event()

    def swap():
        while not stop.is_set():
            inside.rename(aside)
            inside.symlink_to(outside)
            inside.unlink()
            aside.rename(inside)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    for _ in range(2000):
        try:
            seen.add(tools("read_file", path="dir/file"))
        except ToolError:
            continue
    stop.set()
    swapping.join()
    assert seen <= {"     1\tfine"}


def test_what_is_no_regular_file_is_neither_read_nor_replaced(tools):
    os.mkfifo(tools.root / "fifo")
    for name, given in CALLS[:2]:
        with pytest.raises(ToolError, match="no regular file"):
            tools(name, path="fifo", **given)
    with pytest.raises(ToolError):
        tools("read_file", path=".")
    with pytest.raises(ToolError, match="There is no missing"):
        tools("read_file", path="missing")


# -- reading -----------------------------------------------------------------------------------------------------------------


def test_a_read_is_numbered_and_goes_on_where_it_stopped(tools):
    (tools.root / "f").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    shown = tools("read_file", path="f", first_line=3, lines=2)
    assert shown == "     3\tline 3\n     4\tline 4\n[100 lines in all; go on with first_line=5]"
    with pytest.raises(ToolError, match="has 100 lines"):
        tools("read_file", path="f", first_line=101)


def test_a_read_is_bounded_in_characters_and_in_the_length_of_a_line(tools):
    (tools.root / "wide").write_text("x" * 1_000_000 + "\nend\n")
    shown = tools("read_file", path="wide")
    assert len(shown) < 3_000
    assert "998000 more characters" in shown
    assert shown.endswith("end")
    (tools.root / "long").write_text("word word word word\n" * 100_000)
    shown = tools("read_file", path="long")
    assert len(shown) < 45_000
    assert "go on with first_line=" in shown


def test_a_file_too_large_or_binary_is_refused(tools):
    with (tools.root / "large").open("wb") as file:
        file.truncate(11 * 2**20)
    (tools.root / "binary").write_bytes(b"\x7fELF\0\0")
    for path, words in (("large", "at most"), ("binary", "binary file of 6 bytes")):
        with pytest.raises(ToolError, match=words):
            tools("read_file", path=path)


@pytest.mark.parametrize(
    "data",
    [
        "grüße\nwelt\n".encode(),
        b"\xef\xbb\xbf" + "grüße\r\nwelt\r\n".encode(),
        "grüße\nwelt".encode("utf-16"),
        b"\xfe\xff" + "grüße\r\nwelt\n".encode("utf-16-be"),
        "grüße\nwelt\n".encode("latin-1"),
    ],
)
def test_an_edit_keeps_encoding_mark_and_line_ends(tools, data):
    (tools.root / "f").write_bytes(data)
    assert "grüße" in tools("read_file", path="f")
    tools("edit_file", path="f", old="grüße\nwelt", new="grüße\nerde")
    encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(
        data[:2], "latin-1" if b"\xfc" in data else "utf-8"
    )
    assert (tools.root / "f").read_bytes() == data.replace("welt".encode(encoding), "erde".encode(encoding))


def test_an_edit_that_the_encoding_cannot_hold_changes_nothing(tools):
    (tools.root / "f").write_bytes("grüße".encode("latin-1"))
    with pytest.raises(ToolError, match="latin-1"):
        tools("edit_file", path="f", old="gr", new="\N{SNOWMAN}")
    assert (tools.root / "f").read_bytes() == "grüße".encode("latin-1")


# -- writing -----------------------------------------------------------------------------------------------------------------


def test_a_write_makes_directories_keeps_permissions_and_leaves_nothing_else(tools):
    assert tools("write_file", path="a/b/run", content="one") == "Created a/b/run, 3 bytes"
    target = tools.root / "a/b/run"
    target.chmod(0o750)
    assert tools("write_file", path="a/b/run", content="zwei ü") == "Replaced a/b/run, 7 bytes"
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("zwei ü", 0o750)
    assert list((tools.root / "a/b").iterdir()) == [target]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tools, monkeypatch):
    (tools.root / "f").write_text("old")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ToolError, match="No space left"):
        tools("write_file", path="f", content="new")
    assert list(tools.root.iterdir()) == [tools.root / "f"]
    assert (tools.root / "f").read_text() == "old"


def test_a_reader_sees_the_old_or_the_new_file_and_never_half_of_one(tools):
    contents = [letter * 200_000 for letter in "ab"]
    tools("write_file", path="f", content=contents[0])
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for content in contents:
                tools("write_file", path="f", content=content)

    writing = threading.Thread(target=write)
    writing.start()
    seen = {(tools.root / "f").read_text() for _ in range(50)}
    stop.set()
    writing.join()
    assert seen <= set(contents)


def test_edits_of_one_file_side_by_side_all_stand(tools):
    (tools.root / "f").write_text("".join(f"<{n}>" for n in range(20)))
    threads = [
        threading.Thread(target=tools, args=("edit_file",), kwargs={"path": "f", "old": f"<{n}>", "new": f"[{n}]"})
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tools.root / "f").read_text() == "".join(f"[{n}]" for n in range(20))


def test_an_edit_wants_exactly_one_place_unless_told_otherwise(tools):
    (tools.root / "f").write_text("a b a")
    for old, words in (("c", "does not contain"), ("a", "2 times"), ("", "must be some text")):
        with pytest.raises(ToolError, match=words):
            tools("edit_file", path="f", old=old, new="x")
    assert tools("edit_file", path="f", old="a", new="x", everywhere=True) == "Replaced 2 occurrences in f"
    assert (tools.root / "f").read_text() == "x b x"


# -- listing and searching ---------------------------------------------------------------------------------------------------


def test_a_list_names_what_is_there_and_says_where_it_stops(tools):
    (tools.root / "d").mkdir()
    (tools.root / "d/e").write_text("12")
    assert tools("list_files") == "d/"
    assert tools("list_files", recursive=True) == "d/\nd/e\t2"
    for number in range(1100):
        (tools.root / f"d/{number}").touch()
    lines = tools("list_files", recursive=True).split("\n")
    assert len(lines) == 1001
    assert "more than 1000 entries" in lines[-1]


def test_a_search_finds_lines_by_place_and_passes_over_what_is_no_text(tools):
    (tools.root / "src").mkdir()
    (tools.root / "src/a.py").write_text("one\nTwo\n" + "x" * 5000 + "two" + "y" * 5000)
    (tools.root / "src/b.md").write_text("two")
    (tools.root / "bin").write_bytes(b"two\0")
    (tools.root / "link").symlink_to("/etc")
    found = tools("search_files", pattern="two", files="*.py").split("\n")
    assert found[0].startswith("src/a.py:3: ")
    assert len(found[0]) < 400
    assert tools("search_files", pattern="^t.o$", path="src", ignore_case=True) == "src/a.py:2: Two\nsrc/b.md:1: two"
    assert tools("search_files", pattern="nothing") == "[no line matches]"
    with pytest.raises(ToolError, match="no regular expression"):
        tools("search_files", pattern="(")


def test_a_pattern_that_backtracks_for_ever_is_ended_and_holds_up_nobody(tools, monkeypatch):
    from perdure.tools.local import search

    monkeypatch.setattr(search, "TIMEOUT_S", 2.0)
    (tools.root / "f").write_text("a" * 100 + "b")
    with pytest.raises(ToolError, match="longer than 2 s"):
        tools("search_files", pattern="(a+)+$")


def test_a_search_runs_no_code_of_the_directory_it_searches(tools):
    (tools.root / "re.py").write_text("raise SystemExit('hijacked')")
    (tools.root / "json.py").write_text("raise SystemExit('hijacked')")
    assert tools("search_files", pattern="SystemExit").count("hijacked") == 2
