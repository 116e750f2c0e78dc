"""Checks the semantics that programs rely on in a directory, which is the first argument. Tests also run it in an ordinary
directory, which shows that the checks match Linux. Prints the name of each check."""
import ctypes, errno, fcntl, mmap, os, socket, stat, subprocess, sys, threading, time

here = sys.argv[1]
os.chdir(here)
os.umask(0o022)
root = os.geteuid() == 0
libc = ctypes.CDLL(None, use_errno=True)
tried = []


def case(function):
    os.mkdir(function.__name__)
    os.chdir(function.__name__)
    function()
    os.chdir(here)
    tried.append(function.__name__)


def fails(code, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except OSError as error:
        assert error.errno == code, f"{error} instead of {errno.errorcode[code]}"
        return
    raise AssertionError(f"{function.__name__}{arguments} did not fail")


def write(name, data=b""):
    with open(name, "wb") as file:
        file.write(data)


def read(name):
    with open(name, "rb") as file:
        return file.read()


def renameat2(old, new, flags):
    if libc.renameat2(-100, old.encode(), -100, new.encode(), flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@case
def removed_but_open():
    file = os.open("f", os.O_RDWR | os.O_CREAT)
    os.write(file, b"before")
    os.unlink("f")
    os.write(file, b" after")
    assert os.pread(file, 100, 0) == b"before after"
    assert os.fstat(file).st_nlink == 0 and os.fstat(file).st_size == 12
    os.ftruncate(file, 3)
    os.fchmod(file, 0o600)
    assert os.pread(file, 100, 0) == b"bef"
    assert os.listdir(".") == []
    os.close(file)
    write("a", b"a")
    write("b", b"b")
    file = os.open("b", os.O_RDONLY)
    os.rename("a", "b")
    assert os.read(file, 9) == b"b" and read("b") == b"a"
    os.close(file)


@case
def appending():
    write("f", b"1")
    first, second = (os.open("f", os.O_RDWR | os.O_APPEND) for _ in range(2))
    for i in range(50):
        os.write(first, b"a")
        os.write(second, b"b")
    assert read("f") == b"1" + b"ab" * 50
    fcntl.fcntl(first, fcntl.F_SETFL, 0)
    assert os.pwrite(first, b"X", 0) == 1
    assert read("f")[:3] == b"Xab"
    fcntl.fcntl(first, fcntl.F_SETFL, os.O_APPEND)
    os.lseek(first, 0, os.SEEK_SET)
    os.write(first, b"end")
    assert read("f").endswith(b"abend")
    os.close(first)
    os.close(second)


@case
def renaming():
    write("a", b"a")
    write("b", b"b")
    fails(errno.EEXIST, renameat2, "a", "b", 1)
    renameat2("a", "b", 2)
    assert (read("a"), read("b")) == (b"b", b"a")
    renameat2("a", "c", 1)
    assert sorted(os.listdir(".")) == ["b", "c"]
    os.makedirs("d/e")
    write("d/e/f", b"f")
    os.rename("d", "g")
    assert read("g/e/f") == b"f"
    fails(errno.EINVAL, os.rename, "g", "g/e/h")
    os.mkdir("h")
    fails(errno.ENOTEMPTY, os.rename, "h", "g")
    renameat2("b", "g", 2)
    assert read("b/e/f") == b"f" and read("g") == b"a"
    fails(errno.ENOENT, os.rename, "nothing", "x")
    inside = os.open("b/e", os.O_RDONLY)
    os.rename("b/e", "moved")
    assert os.listdir(inside) == ["f"]
    os.close(inside)


@case
def links():
    write("a", b"a")
    os.link("a", "b")
    assert os.stat("a").st_ino == os.stat("b").st_ino and os.stat("a").st_nlink == 2
    with open("b", "ab") as file:
        file.write(b"b")
    assert read("a") == b"ab"
    os.unlink("a")
    assert os.stat("b").st_nlink == 1
    os.symlink("b", "s")
    os.symlink("nowhere/" + "x" * 200, "dangling")
    assert os.readlink("s") == "b" and read("s") == b"ab"
    assert len(os.readlink("dangling")) == 208
    fails(errno.ENOENT, os.stat, "dangling")
    os.link("s", "s2", follow_symlinks=False)
    assert os.lstat("s2").st_nlink == 2 and os.readlink("s2") == "b"
    os.symlink("loop", "loop")
    fails(errno.ELOOP, os.stat, "loop")
    fails(errno.EPERM, os.link, ".", "hard")


@case
def attributes():
    write("f")
    os.setxattr("f", "user.one", b"1")
    os.setxattr("f", "user.two", b"2" * 1000)
    assert sorted(os.listxattr("f")) == ["user.one", "user.two"]
    assert os.getxattr("f", "user.two") == b"2" * 1000
    fails(errno.EEXIST, os.setxattr, "f", "user.one", b"", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, "f", "user.three", b"", os.XATTR_REPLACE)
    os.setxattr("f", "user.empty", b"")
    assert os.getxattr("f", "user.empty") == b""
    os.removexattr("f", "user.one")
    fails(errno.ENODATA, os.getxattr, "f", "user.one")
    fails(errno.ENODATA, os.removexattr, "f", "user.one")
    os.setxattr(".", "user.directory", b"yes")
    assert os.getxattr(".", "user.directory") == b"yes"
    buffer = ctypes.create_string_buffer(10)
    assert libc.getxattr(b"f", b"user.two", buffer, 10) == -1 and ctypes.get_errno() == errno.ERANGE
    if root:
        os.symlink("f", "s")
        os.setxattr("s", "trusted.link", b"l", follow_symlinks=False)
        assert os.getxattr("s", "trusted.link", follow_symlinks=False) == b"l"
        fails(errno.ENODATA, os.getxattr, "f", "trusted.link")


@case
def locks():
    write("f", b"0" * 100)
    a, b = os.open("f", os.O_RDWR), os.open("f", os.O_RDWR)
    fcntl.flock(a, fcntl.LOCK_EX)
    fails(errno.EAGAIN, fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(a, fcntl.LOCK_UN)
    fcntl.flock(b, fcntl.LOCK_SH)
    fcntl.flock(a, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.lockf(a, fcntl.LOCK_EX, 10, 20)
    other = """
import fcntl, os
f = os.open("f", os.O_RDWR)
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 40)
try:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 25)
    print("locked twice")
except OSError:
    print("held", flush=True)
    fcntl.lockf(f, fcntl.LOCK_EX, 10, 20)
    print("got it")
"""
    waiting = subprocess.Popen([sys.executable, "-c", other], stdout=subprocess.PIPE)
    assert waiting.stdout.readline() == b"held\n"
    time.sleep(0.1)
    assert waiting.poll() is None
    fcntl.lockf(a, fcntl.LOCK_UN, 10, 20)
    assert waiting.communicate()[0] == b"got it\n"
    os.close(a)
    os.close(b)


@case
def mapping():
    write("f", bytes(10_000))
    file = os.open("f", os.O_RDWR)
    shared = mmap.mmap(file, 10_000)
    shared[5000:5005] = b"hello"
    shared.flush()
    assert os.pread(file, 5, 5000) == b"hello"
    os.pwrite(file, b"J", 5000)
    assert shared[5000:5005] == b"Jello"
    code = 'import mmap, os; m = mmap.mmap(os.open("f", os.O_RDWR), 0); m[0:3] = b"abc"'
    subprocess.run([sys.executable, "-c", code], check=True)
    assert shared[0:3] == b"abc" and read("f")[:3] == b"abc"
    private = mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE)
    private[0:1] = b"z"
    assert read("f")[:1] == b"a"
    shared.close()
    private.close()
    os.close(file)
    write("run", b"#!/bin/sh\necho ran\n")
    os.chmod("run", 0o755)
    assert subprocess.run(["./run"], capture_output=True).stdout == b"ran\n"
    subprocess.run(["cp", "/bin/true", "true"], check=True)
    assert subprocess.run(["./true"]).returncode == 0


@case
def holes():
    file = os.open("f", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, b"x" * 4096, 1 << 20)
    assert os.fstat(file).st_size == (1 << 20) + 4096 and os.fstat(file).st_blocks < 100
    assert os.lseek(file, 0, os.SEEK_DATA) == 1 << 20
    assert os.lseek(file, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 4096
    fails(errno.ENXIO, os.lseek, file, 2 << 20, os.SEEK_DATA)
    os.posix_fallocate(file, 0, 65_536)
    assert os.fstat(file).st_blocks >= 128
    assert libc.fallocate(file, 3, ctypes.c_long(0), ctypes.c_long(65_536)) == 0
    assert os.lseek(file, 0, os.SEEK_DATA) == 1 << 20
    assert libc.fallocate(file, 1, ctypes.c_long(0), ctypes.c_long(4 << 20)) == 0
    assert os.fstat(file).st_size == (1 << 20) + 4096
    os.truncate("f", 10)
    assert os.fstat(file).st_size == 10 and os.pread(file, 20, 0) == bytes(10)
    os.ftruncate(file, 20)
    assert os.pread(file, 30, 0) == bytes(20)
    os.close(file)


@case
def copying():
    data = os.urandom(300_000)
    write("a", data)
    a, b = os.open("a", os.O_RDONLY), os.open("b", os.O_RDWR | os.O_CREAT)
    copied = 0
    while copied < len(data):
        n = os.copy_file_range(a, b, len(data) - copied, copied, copied)
        assert n > 0
        copied += n
    assert read("b") == data
    os.lseek(a, 0, os.SEEK_SET)
    c = os.open("c", os.O_WRONLY | os.O_CREAT)
    sent = 0
    while sent < len(data):
        sent += os.sendfile(c, a, sent, len(data) - sent)
    assert read("c") == data
    subprocess.run(["cp", "a", "d"], check=True)
    assert read("d") == data
    for file in (a, b, c):
        os.close(file)


@case
def large_directories():
    names = {f"a-rather-long-name-so-that-it-takes-room-{i}" for i in range(3_000)}
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    assert set(os.listdir(".")) == names
    seen = []
    with os.scandir(".") as entries:
        for i, entry in enumerate(entries):
            assert entry.is_file(follow_symlinks=False)
            seen.append(entry.name)
            # Removing entries that were read must not hide entries that were not.
            if i % 2 == 0:
                os.unlink(entry.name)
    assert len(seen) == 3_000 and set(seen) == names
    assert len(os.listdir(".")) == 1_500
    libc.opendir.restype = ctypes.c_void_p
    libc.readdir.restype = ctypes.c_void_p
    libc.telldir.restype = ctypes.c_long
    directory = ctypes.c_void_p(libc.opendir(b"."))

    def following():
        entry = libc.readdir(directory)
        return ctypes.string_at(entry + 19) if entry else None

    for _ in range(700):
        following()
    place = libc.telldir(directory)
    rest = [following() for _ in range(500)]
    libc.seekdir(directory, ctypes.c_long(place))
    assert [following() for _ in range(500)] == rest
    libc.closedir(directory)


@case
def times():
    write("f")
    os.utime("f", ns=(1_234_567_890_123_456_789, 987_654_321_012_345_678))
    state = os.stat("f")
    assert (state.st_atime_ns, state.st_mtime_ns) == (1_234_567_890_123_456_789, 987_654_321_012_345_678)
    os.utime("f", ns=(-1_500_000_000, -1))
    state = os.stat("f")
    assert (state.st_atime_ns, state.st_mtime_ns) == (-1_500_000_000, -1), state
    os.utime("f")
    assert abs(os.stat("f").st_mtime - time.time()) < 5
    os.symlink("f", "s")
    os.utime("s", ns=(5, 7), follow_symlinks=False)
    assert os.lstat("s").st_mtime_ns == 7 and os.stat("s").st_mtime_ns != 7
    before = os.stat("f").st_mtime_ns
    time.sleep(0.02)
    write("f", b"x")
    assert os.stat("f").st_mtime_ns > before
    before = os.stat(".").st_mtime_ns
    time.sleep(0.02)
    write("g")
    assert os.stat(".").st_mtime_ns > before


@case
def modes():
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o666))
    assert stat.S_IMODE(os.stat("f").st_mode) == 0o644
    os.umask(0)
    os.close(os.open("g", os.O_CREAT | os.O_WRONLY, 0o666))
    os.mkdir("d", 0o777)
    os.umask(0o022)
    assert stat.S_IMODE(os.stat("g").st_mode) == 0o666 and stat.S_IMODE(os.stat("d").st_mode) == 0o777
    file = os.open("h", os.O_CREAT | os.O_RDWR, 0o400)
    assert os.write(file, b"read-only, but ours") == 19
    os.close(file)
    os.chmod("f", 0o4755)
    assert stat.S_IMODE(os.stat("f").st_mode) == 0o4755
    os.mkfifo("fifo")
    end = []
    reader = threading.Thread(target=lambda: end.append(read("fifo")))
    reader.start()
    write("fifo", b"through")
    reader.join()
    assert end == [b"through"] and stat.S_ISFIFO(os.stat("fifo").st_mode)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("socket")
    assert stat.S_ISSOCK(os.stat("socket").st_mode)
    space = os.statvfs(".")
    assert space.f_blocks > 0 and space.f_bsize > 0 and space.f_namemax == 255
    fails(errno.ENAMETOOLONG, write, "x" * 256)
    fails(errno.ENOTDIR, os.stat, "f/x")
    fails(errno.EISDIR, os.open, "d", os.O_WRONLY)
    fails(errno.EEXIST, os.mkdir, "d")
    fails(errno.EEXIST, os.open, "f", os.O_CREAT | os.O_EXCL)
    fails(errno.ENOTEMPTY, os.rmdir, "..")


@case
def others():
    if not root:
        return
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert os.stat("null").st_rdev == os.makedev(1, 3)
    assert read("null") == b""
    write("mine", b"secret")
    os.chmod("mine", 0o600)
    os.mkdir("open")
    os.chmod("open", 0o777)
    os.mkdir("group")
    os.chown("group", 0, 4321)
    os.chmod("group", 0o2777)
    write("setuid", b"")
    os.chmod("setuid", 0o6777)
    write("large", b"large")
    os.chmod("large", 0o4777)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(1234)
            os.setuid(1234)
            fails(errno.EACCES, open, "mine")
            fails(errno.EACCES, os.mkdir, "not-here")
            fails(errno.EPERM, os.chown, "open", 1234, 1234)
            fails(errno.EPERM, os.chmod, "mine", 0o666)
            write("open/f", b"theirs")
            os.mkdir("open/d")
            os.symlink("x", "open/s")
            os.mkfifo("open/p")
            write("group/f")
            file = os.open("setuid", os.O_WRONLY)
            os.write(file, b"x")
            os.close(file)
            os.truncate("large", 1)
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    for name in "fdsp":
        state = os.lstat("open/" + name)
        assert (state.st_uid, state.st_gid) == (1234, 1234), name
    assert (os.stat("group/f").st_uid, os.stat("group/f").st_gid) == (1234, 4321)
    assert stat.S_IMODE(os.stat("setuid").st_mode) == 0o777
    assert stat.S_IMODE(os.stat("large").st_mode) == 0o777
    os.chmod("setuid", 0o4755)
    os.chown("setuid", 1234, 1234)
    assert stat.S_IMODE(os.stat("setuid").st_mode) == 0o755


@case
def concurrently():
    os.mkdir("d")
    problems = []

    def shuffle(number):
        try:
            for i in range(200):
                name = f"{number}-{i}"
                write(name, name.encode())
                os.rename(name, f"d/{name}")
                assert read(f"d/{name}") == name.encode()
                os.rename(f"d/{name}", "common")
                if i % 3 == 0:
                    try:
                        os.unlink("common")
                    except FileNotFoundError:
                        pass
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=shuffle, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [], problems
    assert os.listdir("d") == []
    file = os.open("parallel", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 64 * 4096)
    block = [bytes([n]) * 4096 for n in range(64)]
    threads = [threading.Thread(target=os.pwrite, args=(file, block[n], n * 4096)) for n in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.pread(file, 64 * 4096, 0) == b"".join(block)
    os.close(file)


print(" ".join(tried))
