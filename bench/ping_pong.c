/* The program that slices are measured on. All traffic is over loopback. Times are in ns of CLOCK_MONOTONIC.
 *
 * ping_pong tcp SIZE ROUNDS CPU CPU [RING]   a message there and back; prints median and mean of the round trips, send
 *                                            to send. With RING, each round is a data block with two sections, "send"
 *                                            and "receive". With 0 ROUNDS, it does as many as each line of stdin says.
 *                                            Where SERVER=NETNS,ADDRESS is set, the far end is in that namespace.
 * ping_pong udp SIZE RATE MILLISECONDS       that many datagrams a second; prints how many were sent and received.
 */
#define _GNU_SOURCE
#include "../crates/probe/include/netlathe_probe.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char buffer[65536];

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return x < y ? -1 : x > y;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static int whole(int s, int size)
{
    for (int got = 0; got < size;) {
        int n = recv(s, buffer + got, size - got, 0);
        if (n <= 0)
            return -1;
        got += n;
    }
    return 0;
}

static in_addr_t address;

/* A socket belongs to the namespace in which it was created. */
static void enter(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET)) {
        perror(path);
        exit(2);
    }
    close(fd);
}

static int open_port(int type, struct sockaddr_in *at)
{
    socklen_t length = sizeof *at;
    int s = socket(AF_INET, type, 0);
    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET;
    at->sin_addr.s_addr = address;
    if (bind(s, (void *)at, length) || getsockname(s, (void *)at, &length))
        exit(2);
    return s;
}

/* Rounds back to back. Each is timed from its send to the next send, so that a round reads the clock only once. */
static void rally(int s, int size, int rounds, const struct netlathe_ring *ring, int shown)
{
    struct netlathe_block block;
    long *times = malloc((rounds + 1) * sizeof *times), begun;
    for (int i = 0; i < rounds; i++) {
        times[i] = now();
        if (ring) {
            netlathe_init(ring, &block, 6, NETLATHE_SEND);
            netlathe_start(&block, 1);
            send(s, buffer, size, 0);
            netlathe_stop(&block, 1);
            netlathe_start(&block, 2);
            whole(s, size);
            netlathe_stop(&block, 2);
            netlathe_exit(ring, &block);
        } else {
            send(s, buffer, size, 0);
            whole(s, size);
        }
    }
    times[rounds] = now();
    begun = times[0];
    for (int i = 0; i < rounds; i++)
        times[i] = times[i + 1] - times[i];
    begun = (times[rounds] - begun) / rounds;
    qsort(times, rounds, sizeof *times, ascending);
    if (shown)
        printf("%ld %ld\n", times[rounds / 2], begun);
    fflush(stdout);
    free(times);
}

static int tcp(int c, char **v)
{
    int size = atoi(v[2]), rounds = atoi(v[3]), one = 1, listener;
    struct sockaddr_in at;
    char *server = getenv("SERVER"), path[256];
    if (server) {
        int back = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        snprintf(path, sizeof path, "/run/netns/%.*s", (int)strcspn(server, ","), server);
        enter(path);
        address = inet_addr(server + strcspn(server, ",") + 1);
        listener = open_port(SOCK_STREAM, &at);
        if (setns(back, CLONE_NEWNET))
            return 2;
    } else {
        listener = open_port(SOCK_STREAM, &at);
    }
    listen(listener, 1);
    if (!fork()) {
        pin(atoi(v[5]));
        int s = accept(listener, 0, 0);
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        while (!whole(s, size))
            send(s, buffer, size, 0);
        _exit(0);
    }
    pin(atoi(v[4]));
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&at, sizeof at))
        return 2;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct netlathe_ring ring;
    int probes = c > 6, some;
    if (probes) {
        if (netlathe_configure(&ring, v[6], 16 << 20))
            return 2;
        netlathe_name(&ring, 1, "send");
        netlathe_name(&ring, 2, "receive");
    }
    if (rounds) {
        rally(s, size, 200, probes ? &ring : 0, 0);
        rally(s, size, rounds, probes ? &ring : 0, 1);
    }
    while (!rounds && scanf("%d", &some) == 1 && some > 1)
        rally(s, size, some, probes ? &ring : 0, 1);
    return 0;
}

static int udp(char **v)
{
    int size = atoi(v[2]), up[2];
    long gap = 1000000000L / atol(v[3]), received = 0, sent = 0;
    struct sockaddr_in at;
    int receiver = open_port(SOCK_DGRAM, &at), room = 1 << 23;
    struct timeval patience = {.tv_usec = 300000};
    setsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (pipe(up))
        return 2;
    if (!fork()) {
        pin(1);
        setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        sleep(0);
        recv(receiver, buffer, sizeof buffer, 0);
        for (received = 1; recv(receiver, buffer, sizeof buffer, 0) > 0;)
            received++;
        if (write(up[1], &received, sizeof received) < 0)
            _exit(2);
        _exit(0);
    }
    pin(0);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (connect(s, (void *)&at, sizeof at))
        return 2;
    long begun = now(), end = begun + atol(v[4]) * 1000000L, due = begun, t;
    /* Late departures are not caught up, so the rate obtained shows the cost of a datagram. */
    while ((t = now()) < end)
        if (t >= due) {
            send(s, buffer, size, 0);
            sent++;
            due = due + gap < t - 1000000 ? t : due + gap;
        }
    if (read(up[0], &received, sizeof received) < 0)
        return 2;
    wait(0);
    printf("%ld %ld\n", sent * 1000 / atol(v[4]), received * 1000 / atol(v[4]));
    return 0;
}

int main(int c, char **v)
{
    address = htonl(INADDR_LOOPBACK);
    if (c >= 6 && !strcmp(v[1], "tcp"))
        return tcp(c, v);
    if (c == 5 && !strcmp(v[1], "udp"))
        return udp(v);
    fprintf(stderr, "ping_pong tcp SIZE ROUNDS CPU CPU [RING] | ping_pong udp SIZE RATE MILLISECONDS\n");
    return 2;
}
