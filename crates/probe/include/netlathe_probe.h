/* netlathe probes for C: measure sections of a program's own code, block by block.
 *
 * Provides NetSlice's five operations. Header only: there is no library to link. Needs Linux, gcc or clang, and C99 or
 * C++11 or later.
 *
 *     struct netlathe_ring ring;
 *     if (netlathe_configure(&ring, "/dev/shm/server.probes", 16 << 20))
 *         perror("probes");                       // the operations then do nothing
 *     netlathe_name(&ring, 1, "parse");
 *     …
 *     struct netlathe_block block;
 *     netlathe_init(&ring, &block, 6, NETLATHE_RECEIVE);
 *     netlathe_start(&block, 1);
 *     …                                           // the measured code
 *     netlathe_stop(&block, 1);
 *     netlathe_exit(&ring, &block);
 *
 * `netlathe slice attach /dev/shm/server.probes` enables the probes, reads them and shows the results. While they are
 * disabled, each operation costs one branch. Sections are numbered 0 to 31 and may overlap; a block holds up to 16.
 * Threads and processes may share a ring but not a block. crates/probe/src/layout.rs documents the ring's layout.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NETLATHE_PROBE_H
#define NETLATHE_PROBE_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if !defined(MAP_POPULATE) || !defined(O_CLOEXEC)
#error "netlathe_probe.h: include it before other headers, or compile with -std=gnu11 or -D_GNU_SOURCE"
#endif

#define NETLATHE_SECTIONS 16
#define NETLATHE_IDS 32
#define NETLATHE_SEND 0
#define NETLATHE_RECEIVE 1

enum {
    NETLATHE_AT_VERSION = 1, NETLATHE_AT_SLOTS = 2, NETLATHE_AT_ENABLED = 3, NETLATHE_AT_COSTS = 4,
    NETLATHE_AT_WRITTEN = 8, NETLATHE_AT_READ = 16, NETLATHE_AT_LOOKED = 17, NETLATHE_AT_DROPPED = 24, NETLATHE_AT_NAMES = 64,
    NETLATHE_NAME_WORDS = 7, NETLATHE_FIRST_SLOT = 512, NETLATHE_HEADER_WORDS = 4,
    NETLATHE_SLOT_WORDS = NETLATHE_HEADER_WORDS + 2 * NETLATHE_SECTIONS, NETLATHE_VERSION = 1,
    NETLATHE_FIRST = 64, NETLATHE_EVERY = 16, /* the first 64 blocks of a thread are timed, then one in 16 */
    NETLATHE_AFTER_DROP = 1 << 9, NETLATHE_GONE_BITS = 33
};

/* Per thread: its ID, read from the kernel once, and whether its last block was dropped. Weak, so that all files that
 * include this header share them. */
__attribute__((weak)) __thread uint32_t netlathe_thread, netlathe_after;

struct netlathe_ring {
    uint64_t *words; /* NULL if it could not be configured */
    uint64_t slots;
    uint64_t clock; /* time between two ordered readings of the clock, in 1/1024 of a tick */
};

struct netlathe_block {
    uint64_t header, start;
    uint32_t on, count, beyond, timed;
    uint64_t open[NETLATHE_IDS];
    struct { uint64_t first, length; } section[NETLATHE_SECTIONS];
};

static inline __attribute__((always_inline)) uint64_t netlathe_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

/* As netlathe_ticks, after all earlier operations have completed and reached the cache, for timing from outside. */
static inline uint64_t netlathe_settled(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#if defined(__x86_64__)
    __builtin_ia32_lfence();
#endif
    return netlathe_ticks();
}

static inline uint64_t netlathe_magic(void)
{
    uint64_t magic;
    /* The ring holds integers in the machine's byte order; in memory this one spells the letters on little-endian
     * machines only. */
    const unsigned char letters[8] = {'N', 'L', 'P', 'R', 'O', 'B', 'E', '1'};
    magic = 0;
    for (int i = 7; i >= 0; i--)
        magic = magic << 8 | letters[i];
    return magic;
}

/* Learns a cost measured in the program's own loop, with its real cache misses. The figure moves by a step towards each
 * measurement, at first by larger steps, and so tracks the median. */
static inline void netlathe_learn(const struct netlathe_ring *ring, int cost, uint64_t taken, uint32_t timed)
{
    uint64_t *word = &ring->words[NETLATHE_AT_COSTS + cost], old = __atomic_load_n(word, __ATOMIC_RELAXED);
    uint64_t step = old / timed + 1;
    taken = taken << 10 > ring->clock ? (taken << 10) - ring->clock : 0;
    __atomic_store_n(word, taken > old ? old + step : old - (step < old ? step : old), __ATOMIC_RELAXED);
}

static inline void netlathe_begin(struct netlathe_block *block, int on, uint64_t header)
{
    block->on = (uint32_t)on;
    block->count = block->beyond = block->timed = 0;
    block->header = header;
    if (on) {
        memset(block->open, 0, sizeof(block->open));
        block->start = netlathe_ticks();
    }
}

/* Starts the block of a packet. `protocol` is the IP protocol number, 6 for TCP and 17 for UDP. */
static inline void netlathe_init(const struct netlathe_ring *ring, struct netlathe_block *block, uint8_t protocol,
                                 int direction)
{
    static __thread uint32_t blocks;
    uint64_t header = (uint64_t)protocol | (uint64_t)(direction & 1) << 8, begun;
    int on = ring->words && __atomic_load_n(&ring->words[NETLATHE_AT_ENABLED], __ATOMIC_RELAXED) != 0;
    if (!on || (++blocks > NETLATHE_FIRST && blocks % NETLATHE_EVERY)) {
        netlathe_begin(block, on, header);
        return;
    }
    begun = netlathe_settled();
    netlathe_begin(block, on, header);
    block->timed = blocks > NETLATHE_FIRST ? 32 : 8;
    netlathe_learn(ring, 0, netlathe_settled() - begun, block->timed);
}

/* Sets the packet's lengths in bytes: transport header, IP header, whole packet. */
static inline void netlathe_lengths(struct netlathe_block *block, uint8_t transport, uint8_t ip, uint16_t length)
{
    block->header = (block->header & 0xffffffffu) | (uint64_t)transport << 32 | (uint64_t)ip << 40 | (uint64_t)length << 48;
}

static inline __attribute__((always_inline)) void netlathe_start(struct netlathe_block *block, unsigned id)
{
    if (block->on && id < NETLATHE_IDS)
        block->open[id] = netlathe_ticks();
}

static inline __attribute__((always_inline)) void netlathe_stop(struct netlathe_block *block, unsigned id)
{
    if (block->on) {
        uint64_t now = netlathe_ticks(), started, after;
        if (id >= NETLATHE_IDS) {
            block->beyond++;
            return;
        }
        started = block->open[id];
        block->open[id] = 0;
        if (!started)
            return;
        if (block->count >= NETLATHE_SECTIONS) {
            block->beyond++;
            return;
        }
        /* If the counters of two CPUs differ, a migrated thread may see time go backwards. */
        after = started > block->start ? started - block->start : 0;
        if (after > 0xffffffffu)
            after = 0xffffffffu;
        block->section[block->count].first = id | (uint64_t)0x511CE << 8 | after << 32;
        block->section[block->count].length = now > started ? now - started : 0;
        block->count++;
    }
}

static inline void netlathe_write_slot(uint64_t *slot, const struct netlathe_block *block, uint64_t number)
{
    uint64_t beyond = block->beyond > 0xffff ? 0xffff : block->beyond;
    if (!netlathe_thread)
        netlathe_thread = (uint32_t)syscall(SYS_gettid);
    __atomic_store_n(&slot[1], block->header | netlathe_after, __ATOMIC_RELAXED);
    netlathe_after = 0;
    __atomic_store_n(&slot[2], block->start, __ATOMIC_RELAXED);
    __atomic_store_n(&slot[3], netlathe_thread | (uint64_t)block->count << 32 | beyond << 48, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < block->count; i++) {
        __atomic_store_n(&slot[NETLATHE_HEADER_WORDS + 2 * i], block->section[i].first, __ATOMIC_RELAXED);
        __atomic_store_n(&slot[NETLATHE_HEADER_WORDS + 2 * i + 1], block->section[i].length, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&slot[0], number + 1, __ATOMIC_RELEASE);
}

/* Prefetches the next slot. The reader accessed it last, so stores to it would miss and fill the CPU's store buffer,
 * which would delay the first sections of the next block: 0.1 us that would go unnoticed. */
static inline void netlathe_near(const uint64_t *slot, uint32_t count)
{
    for (uint32_t i = 0; i < NETLATHE_HEADER_WORDS + 2 * count + 7; i += 8)
#if defined(__x86_64__)
        /* Without -mprfchw, the builtin below would prefetch for reading. */
        __asm__ volatile("prefetchw %0" : : "m"(slot[i]));
#else
        __builtin_prefetch(slot + i, 1);
#endif
}

/* The ring is full: counts a dropped block. If the reader has not polled for some seconds, it was killed; then disables
 * the probes. */
static inline __attribute__((cold)) void netlathe_drop(uint64_t *w)
{
    uint64_t looked = __atomic_load_n(&w[NETLATHE_AT_LOOKED], __ATOMIC_RELAXED), now = netlathe_ticks();
    __atomic_fetch_add(&w[NETLATHE_AT_DROPPED], 1, __ATOMIC_RELAXED);
    netlathe_after = NETLATHE_AFTER_DROP;
    /* A ring on disk may be from an earlier boot, whose counter was ahead. */
    if (looked && (now > looked ? now - looked : looked - now) >> NETLATHE_GONE_BITS)
        __atomic_store_n(&w[NETLATHE_AT_ENABLED], 0, __ATOMIC_RELAXED);
}

/* Ends a block: writes it to the ring, or counts it as dropped if the ring is full. */
static inline void netlathe_exit(const struct netlathe_ring *ring, const struct netlathe_block *block)
{
    uint64_t *w = ring->words, number, begun = block->timed ? netlathe_settled() : 0;
    if (!block->on)
        return;
    number = __atomic_load_n(&w[NETLATHE_AT_WRITTEN], __ATOMIC_RELAXED);
    do {
        if (number - __atomic_load_n(&w[NETLATHE_AT_READ], __ATOMIC_ACQUIRE) >= ring->slots) {
            netlathe_drop(w);
            return;
        }
    } while (!__atomic_compare_exchange_n(&w[NETLATHE_AT_WRITTEN], &number, number + 1, 1, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    netlathe_write_slot(w + NETLATHE_FIRST_SLOT + number % ring->slots * NETLATHE_SLOT_WORDS, block, number);
    netlathe_near(w + NETLATHE_FIRST_SLOT + (number + 1) % ring->slots * NETLATHE_SLOT_WORDS, block->count);
    /* Includes the time until its stores are in the cache, because the program's next call would wait for that. */
    if (block->timed)
        netlathe_learn(ring, 3, netlathe_settled() - begun, block->timed);
}

/* Sets the display name of a section, of up to 55 bytes. */
static inline void netlathe_name(const struct netlathe_ring *ring, unsigned id, const char *name)
{
    char text[NETLATHE_NAME_WORDS * 8] = {0};
    if (!ring->words || id >= NETLATHE_IDS)
        return;
    strncpy(text, name, sizeof(text) - 1);
    memcpy(&ring->words[NETLATHE_AT_NAMES + id * NETLATHE_NAME_WORDS], text, sizeof(text));
}

static inline uint64_t netlathe_median(uint64_t *values, int count)
{
    for (int i = 1; i < count; i++) {
        uint64_t value = values[i];
        int k = i;
        for (; k > 0 && values[k - 1] > value; k--)
            values[k] = values[k - 1];
        values[k] = value;
    }
    return values[count / 2];
}

/* Calibrates the cost of each operation: medians of many tries, in 1/1024 of a tick. Caches are warm, so for init and
 * exit these are only the starting values of learning. */
static inline void netlathe_calibrate(struct netlathe_ring *ring)
{
    enum { TRIES = 501, PAIRS = 8 };
    uint64_t took[6][TRIES], slot[NETLATHE_SLOT_WORDS], median[6];
    for (int i = 0; i < TRIES; i++) {
        struct netlathe_block block;
        uint64_t t[5], inside = 0;
        t[0] = netlathe_ticks();
        netlathe_begin(&block, 1, 6);
        t[1] = netlathe_ticks();
        /* Several pairs, because one takes little longer than a reading of the clock. */
        for (unsigned id = 0; id < PAIRS; id++) {
            netlathe_start(&block, id);
            netlathe_stop(&block, id);
        }
        t[2] = netlathe_ticks();
        netlathe_write_slot(slot, &block, 0);
        __asm__ volatile("" : : "r"(slot) : "memory");
        t[3] = netlathe_ticks();
        t[4] = netlathe_ticks();
        for (int k = 0; k < 4; k++)
            took[k][i] = (t[k + 1] - t[k]) << 10;
        for (uint32_t k = 0; k < block.count; k++)
            inside += block.section[k].length;
        took[4][i] = (inside << 10) / PAIRS;
        t[0] = netlathe_settled();
        took[5][i] = (netlathe_settled() - t[0]) << 10;
    }
    for (int k = 0; k < 6; k++)
        median[k] = netlathe_median(took[k], TRIES);
    /* Of the time between two readings, one reading belongs to the clock. */
    for (int k = 0; k < 3; k++)
        median[k] = median[k] > median[3] ? median[k] - median[3] : 0;
    ring->clock = median[5];
    ring->words[NETLATHE_AT_COSTS] = median[0];
    ring->words[NETLATHE_AT_COSTS + 1] = median[1] / PAIRS;
    ring->words[NETLATHE_AT_COSTS + 2] = median[4];
    ring->words[NETLATHE_AT_COSTS + 3] = median[2];
}

/* In a forked process, the remaining thread has another ID. */
static inline void netlathe_forget_thread(void)
{
    netlathe_thread = 0;
}

/* Creates the file of a ring. It gets its name when it is complete, so no process finds a partial file, even if the
 * creator is killed. An existing file is kept. Returns 0 or an errno. */
static inline int netlathe_make(const char *path, uint64_t slots)
{
    uint64_t head[3];
    char name[4096];
    size_t length = strlen(path);
    int fd = -1, error = 0;
    if (!slots)
        return EINVAL;
    if (length + sizeof(".new00") > sizeof(name))
        return ENAMETOOLONG;
    memcpy(name, path, length);
    memcpy(name + length, ".new00", sizeof(".new00"));
    for (int n = 0; fd < 0 && n < 100; n++) {
        name[length + 4] = (char)('0' + n / 10);
        name[length + 5] = (char)('0' + n % 10);
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return errno;
    head[0] = netlathe_magic();
    head[1] = NETLATHE_VERSION | (uint64_t)NETLATHE_SLOT_WORDS << 32;
    head[2] = slots;
    error = posix_fallocate(fd, 0, (off_t)((NETLATHE_FIRST_SLOT + slots * NETLATHE_SLOT_WORDS) * 8));
    if (!error && pwrite(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head))
        error = EIO;
    if (!error && link(name, path) && errno != EEXIST)
        error = errno;
    unlink(name);
    close(fd);
    return error;
}

/* Opens the ring in a file, or creates one of about `bytes` bytes. Returns 0, or -1 with errno set; EPROTO if the file
 * is not a ring. */
static inline int netlathe_configure(struct netlathe_ring *ring, const char *path, size_t bytes)
{
    static int told;
    uint64_t *w, slots = bytes / 8 > NETLATHE_FIRST_SLOT ? (bytes / 8 - NETLATHE_FIRST_SLOT) / NETLATHE_SLOT_WORDS : 0;
    uint64_t version = NETLATHE_VERSION | (uint64_t)NETLATHE_SLOT_WORDS << 32;
    struct stat file;
    int error = 0, fd;
    ring->words = NULL;
    ring->slots = 0;
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        error = netlathe_make(path, slots);
        if (error) {
            errno = error;
            return -1;
        }
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (fd < 0)
        return -1;
    if (fstat(fd, &file))
        error = errno;
    else if (file.st_size < (off_t)((NETLATHE_FIRST_SLOT + NETLATHE_SLOT_WORDS) * 8))
        error = EPROTO;
    if (!error && !__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        error = pthread_atfork(NULL, NULL, netlathe_forget_thread);
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    w = (uint64_t *)mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    if (w == MAP_FAILED)
        return -1;
    slots = w[NETLATHE_AT_SLOTS];
    if (__atomic_load_n(&w[0], __ATOMIC_ACQUIRE) != netlathe_magic() || w[NETLATHE_AT_VERSION] != version || !slots ||
        slots > ((uint64_t)file.st_size / 8 - NETLATHE_FIRST_SLOT) / NETLATHE_SLOT_WORDS) {
        munmap(w, (size_t)file.st_size);
        errno = EPROTO;
        return -1;
    }
    ring->words = w;
    ring->slots = slots;
    netlathe_calibrate(ring);
    return 0;
}

#endif
