"""A database on a file system that other machines share is refused before anything is made (DB-3)."""

import os

import pytest

from perdure import Perdure, config, errors
from perdure.maintenance import opening
from perdure.store import filesystem
from perdure.store.sqlite import SqliteStore


def mounted(tmp_path, monkeypatch, kind, path=None):
    """Have the table of mounts say that a path lies on that kind of file system."""
    device = (path or tmp_path).stat().st_dev
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 27 0:999 / /proc rw,relatime - proc proc rw\n"
        "31 1 0:998 / /a\\040place rw,relatime shared:5 master:2 - nfs4 server:/else rw,vers=4.2\n"
        f"29 1 {os.major(device)}:{os.minor(device)} / /mnt/x rw,relatime shared:7 - {kind} server:/there rw,vers=4.2\n"
    )
    monkeypatch.setattr(filesystem, "MOUNTS", table)


def test_the_kernels_own_table_says_what_a_path_lies_on_db_3(tmp_path):
    if not filesystem.MOUNTS.exists():
        pytest.skip("no Linux")
    assert filesystem.kind_of(filesystem.MOUNTS) == "proc"
    here = filesystem.kind_of(tmp_path)
    assert here not in filesystem.SHARED
    assert filesystem.kind_of(tmp_path / "not there yet") == here


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs"])
async def test_a_network_file_system_is_refused_and_nothing_is_made_db_3(tmp_path, monkeypatch, kind):
    mounted(tmp_path, monkeypatch, kind)
    path = tmp_path / "log.db"
    with pytest.raises(
        errors.StoreUnusable, match=rf"network file system \({kind}\).*PERDURE_ALLOW_NETWORK_FILES=true"
    ):
        await SqliteStore.open(path)
    with pytest.raises(errors.StoreUnusable):
        await opening.migrate(path)
    assert not path.exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "virtiofs", "fuseblk"])
async def test_a_local_one_is_taken_db_3(tmp_path, monkeypatch, kind):
    mounted(tmp_path, monkeypatch, kind)
    await (await SqliteStore.open(tmp_path / "log.db")).close()


async def test_a_link_does_not_deceive_db_3(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    mounted(tmp_path, monkeypatch, "nfs", tmp_path / "there")
    with pytest.raises(errors.StoreUnusable, match="nfs"):
        await SqliteStore.open(tmp_path / "here" / "log.db")


async def test_what_nothing_is_known_of_is_taken_db_3(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "none")
    await (await SqliteStore.open(tmp_path / "log.db")).close()
    for odd in ("", "x", "1 2\n", "1 2 8:1 / /\n", "1 2 3 - \n"):
        (tmp_path / "none").write_text(odd)
        assert filesystem.kind_of(tmp_path) is None


async def test_whoever_insists_is_served_by_engine_and_maintenance_db_3(tmp_path, monkeypatch):
    mounted(tmp_path, monkeypatch, "nfs4")
    path = tmp_path / "log.db"
    settings = config.settings(database_url=str(path), allow_network_files=True)
    async with Perdure(settings=settings, idle=True):
        pass
    with pytest.raises(errors.StoreUnusable):
        async with Perdure(database=str(path), idle=True):
            pass
    monkeypatch.setenv("PERDURE_ALLOW_NETWORK_FILES", "true")
    async with opening.log(path) as log:
        assert await log.last_position() == 0


async def test_a_file_there_can_be_looked_at_to_save_it_db_3(tmp_path, monkeypatch):
    path = tmp_path / "log.db"
    await (await SqliteStore.open(path)).close()
    mounted(tmp_path, monkeypatch, "nfs4")
    async with opening.look(path) as log:
        assert await log.last_position() == 0
    assert opening.schema_of(path) == 1
