"""Which set-user-ID, set-group-ID and file capabilities remain when a file is changed, and which attributes a user
sees. The argument is a directory; prints one line for each case. Root runs it in an ordinary directory and in the one
under test, and compares. Each file is looked at immediately before and after the change, so that a remembered mode
shows."""
import ctypes, errno, mmap, os, struct, sys

USER, GROUP, OTHER = 1234, 1234, 4321
os.chdir(sys.argv[1])
os.chmod(".", 0o777)
os.umask(0o022)
libc = ctypes.CDLL(None, use_errno=True)
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0)


def fallocate(mode, offset=0, length=4096):
    def change():
        file = os.open("f", os.O_RDWR)
        if libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")
    return change


def direct():
    page = mmap.mmap(-1, 4096)
    os.pwritev(os.open("f", os.O_RDWR | os.O_DIRECT), [page], 0)


def copy_range():
    source = os.open("source", os.O_RDONLY)
    os.copy_file_range(source, os.open("f", os.O_WRONLY), 100, 0, 0)


def by_map():
    file = os.open("f", os.O_RDWR)
    shared = mmap.mmap(file, 4096)
    shared[0] = 7
    shared.flush()


def acl():
    # user::rwx, group::r-x, mask::rwx, other::r-x and one named user, as setfacl writes them.
    entries = [(1, 7, 0xFFFFFFFF), (2, 7, 99), (4, 5, 0xFFFFFFFF), (16, 7, 0xFFFFFFFF), (32, 5, 0xFFFFFFFF)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr("f", "system.posix_acl_access", value)


CHANGES = {
    "write": lambda: os.pwrite(os.open("f", os.O_RDWR), b"z", 0),
    "nothing": lambda: os.pwrite(os.open("f", os.O_RDWR), b"", 0),
    "append": lambda: os.write(os.open("f", os.O_WRONLY | os.O_APPEND), b"z"),
    "extend": lambda: os.pwrite(os.open("f", os.O_WRONLY), b"z", 1_500_000),
    "dsync": lambda: os.pwritev(os.open("f", os.O_RDWR), [b"z"], 0, os.RWF_DSYNC),
    "direct": direct,
    "map": by_map,
    "truncate": lambda: os.truncate("f", 5),
    "ftruncate": lambda: os.ftruncate(os.open("f", os.O_RDWR), 20_000),
    "O_TRUNC": lambda: os.open("f", os.O_WRONLY | os.O_TRUNC),
    "copy_file_range": copy_range,
    "fallocate": fallocate(0, 0, 90_000),
    "keep_size": fallocate(1, 0, 90_000),
    "punch": fallocate(3),
    "zero": fallocate(16),
    "posix_fallocate": lambda: os.posix_fallocate(os.open("f", os.O_RDWR), 0, 30_000),
    "chgrp": lambda: os.chown("f", -1, GROUP),
    "acl": acl,
    "chmod": lambda: os.chmod("f", 0o6775),
}


def by(user, groups, function):
    """Runs a function as a user, and prints the result."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            if user:
                os.setgroups(groups)
                os.setgid(GROUP)
                os.setuid(USER)
            function()
        except OSError as error:
            code = error.errno
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return errno.errorcode[code] if code else "ok"


def capability():
    try:
        return "capability" if os.getxattr("f", "security.capability") == CAPABILITY else "another"
    except OSError as error:
        return errno.errorcode[error.errno]


with open("source", "wb") as source:
    source.write(b"s" * 4096)
for name, change in CHANGES.items():
    for who, user, groups in [("user", True, []), ("member", True, [OTHER]), ("root", False, [])]:
        for owner in [(USER, GROUP), (0, 0), (USER, 0), (USER, OTHER)]:
            outcome = []
            for mode in [0o6777, 0o6766, 0o4777, 0o2777, 0o2666, 0o0777]:
                with open("f", "wb") as file:
                    file.write(b"x" * 10_000)
                os.chown("f", *owner)
                os.chmod("f", mode)
                os.setxattr("f", "security.capability", CAPABILITY)
                before = os.stat("f").st_mode & 0o7777
                assert before == mode, oct(before)
                result = by(user, groups, change)
                # What is changed by a map is written back by a write, which takes a capability away; Linux leaves it.
                left = "" if name == "map" else capability()
                outcome.append(f"{mode:04o}>{os.stat('f').st_mode & 0o7777:04o},{result},{left}")
                os.unlink("f")
            print(name, who, *owner, *outcome)

# A directory keeps set-group-ID, but for an ACL of one who is not in the group.
for owner in [(USER, GROUP), (USER, OTHER)]:
    os.mkdir("f")
    os.chown("f", *owner)
    os.chmod("f", 0o2775)
    print("directory", *owner, by(True, [], acl), oct(os.stat("f").st_mode))
    os.rmdir("f")


def listed(name):
    return lambda: print("sees", name, sorted(os.listxattr(name, follow_symlinks=False)), flush=True)


with open("named", "wb") as file:
    pass
os.mkdir("folder")
os.symlink("named", "link")
for name in ["named", "folder", "link"]:
    os.setxattr(name, "trusted.secret", b"1", follow_symlinks=False)
    if name != "link":
        os.setxattr(name, "user.open", b"1")
    os.setxattr(name, "security.other", b"1", follow_symlinks=False)
    for user in [True, False]:
        sys.stdout.flush()
        print("listed", user, by(user, [], listed(name)))
    room = ctypes.create_string_buffer(6)
    print("short", libc.llistxattr(name.encode(), room, 6), errno.errorcode.get(ctypes.get_errno()))
