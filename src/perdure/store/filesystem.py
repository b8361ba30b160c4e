"""Whether a path lies on a file system that other machines share, as far as Linux tells.

Lives here: the kinds that are such, and finding out of which kind a path is. Not here: what a database is on it
(`sqlite_connection.py`). The kernel's table of mounts names the device of each, and `stat` that of a file, so neither links
nor binds nor names deceive; a file whose device the table does not have (a btrfs subvolume, an overlay) is on none of these.
"""

from __future__ import annotations

import os
from pathlib import Path

from perdure import errors

MOUNTS = Path("/proc/self/mountinfo")
SHARED = frozenset(
    "9p afs beegfs ceph cifs coda gfs2 glusterfs gpfs lustre nfs nfs4 ocfs2 orangefs prl_fs pvfs2 smb3 smbfs vboxsf vmhgfs "
    "fuse.ceph fuse.ceph-fuse fuse.curlftpfs fuse.gcsfuse fuse.glusterfs fuse.juicefs fuse.mount-s3 fuse.rclone fuse.s3fs "
    "fuse.smbnetfs fuse.sshfs fuse.vmhgfs-fuse".split()
)
"""Kinds on which another machine may have the same file open, with locks and memory of its own."""


def refuse_shared(path: Path) -> None:
    """Raise `StoreUnusable` for a file, or a place for one, on a shared file system."""
    kind = kind_of(path)
    if kind in SHARED:
        why = f"it lies on a network file system ({kind}), where SQLite's locks and its write-ahead log are not to be relied on"
        way = "put it on a local disk; to use it as it is, on one machine only, set PERDURE_ALLOW_NETWORK_FILES=true"
        raise errors.StoreUnusable(f"Cannot open {path}: {why}; {way}")


def kind_of(path: Path) -> str | None:
    """The kind of file system, such as `ext4`; None where nothing says."""
    try:
        device = (path if path.exists() else path.absolute().parent).stat().st_dev
        mounts = MOUNTS.read_text(errors="replace")
    except (OSError, ValueError):  # of a path that is none
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        # number, parent, device, root, place, options, any others, "-", kind, source, options of the kind
        head, _, tail = line.partition(" - ")
        if head.split()[2:3] == [wanted] and tail:
            return tail.split()[0]
    return None
