"""Tries to run a program of one's own as root: by overwriting a set-user-ID program of root's that everybody may write
to. Arguments: a directory, a number of attempts, and `before` or `during`: whether the program is written before it is
run or while it is being started. Prints the number of attempts and how many of them ran as root."""
import os, shutil, sys, time

USER = 1234
folder, attempts, when = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.chdir(folder)
os.chmod(".", 0o777)


def child(function):
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            function()
        finally:
            os._exit(99)
    return pid


def run(output):
    os.dup2(output, 1)
    os.execv("./program", ["program", "-u"])


def overwrite(opened, go):
    file = os.open("program", os.O_WRONLY)
    os.write(opened, b"x")
    os.read(go, 1)
    # Behind the end of the program, so that it still runs.
    os.pwrite(file, b"mine", 200_000)
    os.close(file)
    os._exit(0)


succeeded = ran = 0
for _ in range(attempts):
    shutil.copy(shutil.which("id"), "program")
    os.chmod("program", 0o4777)
    assert os.stat("program").st_mode & 0o4000
    (reading, writing), (opened, opens), (goes, go) = pipes = os.pipe(), os.pipe(), os.pipe()
    writer = child(lambda: overwrite(opens, goes))
    os.read(opened, 1)
    if when == "before":
        os.write(go, b"x")
        os.waitpid(writer, 0)
        runner = child(lambda: run(writing))
    else:
        # Opening takes long here: the program is written, and closed, while its start waits for that.
        runner = child(lambda: run(writing))
        time.sleep(0.02)
        os.write(go, b"x")
        os.waitpid(writer, 0)
    os.waitpid(runner, 0)
    os.close(writing)
    said = os.read(reading, 100).strip()
    for end in {end for pipe in pipes for end in pipe} - {writing}:
        os.close(end)
    ran += said != b""
    succeeded += said == b"0"
    os.unlink("program")
assert ran > attempts // 2, f"only {ran} of {attempts} started"
print(attempts, succeeded)
