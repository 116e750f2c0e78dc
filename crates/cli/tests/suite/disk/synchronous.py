"""Synchronous writes of each kind, 3 of each, and as many others. The argument is a directory. Prints how many of the
synchronous and of the other writes failed with EIO, and whether the data are there."""
import errno, mmap, os, sys

os.chdir(sys.argv[1])
page = mmap.mmap(-1, 4096)
page[:] = b"d" * 4096
plain = os.open("f", os.O_RDWR | os.O_CREAT)


def through(flags):
    file = os.open("f", os.O_RDWR | flags)
    return lambda: os.pwrite(file, page, 0)


synchronous = [
    lambda: os.pwritev(plain, [page], 0, os.RWF_DSYNC),
    lambda: os.pwritev(plain, [page], 0, os.RWF_SYNC),
    lambda: os.pwritev(plain, [page], 0, os.RWF_APPEND | os.RWF_DSYNC),
    through(os.O_DSYNC),
    through(os.O_SYNC),
    through(os.O_SYNC | os.O_APPEND),
    through(os.O_DIRECT | os.O_DSYNC),
]
others = [lambda: os.pwrite(plain, page, 0), through(os.O_APPEND)]


def failures(kinds):
    failed = 0
    for kind in kinds:
        for _ in range(3):
            try:
                assert kind() == 4096
            except OSError as error:
                assert error.errno == errno.EIO, error
                failed += 1
    return failed


outcome = failures(synchronous), failures(others)
print(*outcome, os.pread(plain, 4096, 0) == bytes(page))
