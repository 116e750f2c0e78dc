"""Many reads that wait at once, by an ordinary user. Arguments: a file of 1 MiB, the process that serves it, how many
reads, and for how many seconds to wait when all have begun. Prints `waiting` then; when all have come back, the bytes
that they brought; then the largest memory of the process so far, in KiB. A last read, done while all others wait,
compares each byte."""
import os, sys, threading, time

path, server, reads, patience = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(1234)
    os.setuid(1234)
file = os.open(path, os.O_RDONLY)
common = bytearray(1 << 20)
begun = []
brought = []


def read():
    begun.append(1)
    brought.append(os.preadv(file, [common], 0))


threading.stack_size(64 * 1024)
threads = [threading.Thread(target=read) for _ in range(reads)]
for thread in threads:
    thread.start()
while len(begun) < reads:
    time.sleep(0.01)
time.sleep(patience)
print("waiting", flush=True)
own = os.pread(file, 1 << 20, 0)
assert own == bytes(range(256)) * 4096, "another content"
for thread in threads:
    thread.join()
print(sum(brought) + len(own))
with open(f"/proc/{server}/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
