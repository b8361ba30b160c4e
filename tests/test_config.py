"""Settings: argument over environment over file, and one clear error for each thing that can be wrong."""

import pytest

from perdure import config, errors


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERDURE_CONFIG", raising=False)
    monkeypatch.delenv("PERDURE_PORT", raising=False)


def test_an_argument_wins_over_the_environment_and_that_over_the_file(tmp_path, monkeypatch):
    assert config.settings().port == 7433
    (tmp_path / "perdure.toml").write_text("port = 1\nlease_seconds = 5\n")
    assert (config.settings().port, config.settings().lease_seconds) == (1, 5)
    monkeypatch.setenv("PERDURE_PORT", "2")
    assert config.settings().port == 2
    assert config.settings(port=3).port == 3


def test_a_file_elsewhere_is_named_by_the_environment(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('database_url = "sqlite:mine.db"\n')
    monkeypatch.setenv("PERDURE_CONFIG", str(tmp_path / "mine.toml"))
    assert str(config.settings().database_path) == "mine.db"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = ", "perdure.toml: "),
        ("prot = 1", "there is no setting 'prot'; there are: database_url, host, port"),
        ('port = "high"', "PERDURE_PORT: "),
        ("lease_seconds = 0", "PERDURE_LEASE_SECONDS: "),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text, words, tmp_path):
    (tmp_path / "perdure.toml").write_text(text)
    with pytest.raises(errors.ConfigError) as refused:
        config.settings()
    assert words in str(refused.value)


def test_a_named_file_that_is_missing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(errors.ConfigError, match=r"none\.toml"):
        config.settings()


@pytest.mark.parametrize(("url", "words"), [("mysql://x/y", "mysql:// is not supported"), ("", "is empty")])
def test_a_database_that_is_no_file_is_refused(url, words):
    with pytest.raises(errors.ConfigError, match=words):
        assert config.settings(database_url=url).database_path
