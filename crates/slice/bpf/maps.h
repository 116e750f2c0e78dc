/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records, settings and maps. src/record.rs reads and src/settings.rs writes these structs: change them together. */
#ifndef NETLATHE_MAPS_H
#define NETLATHE_MAPS_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#define POINTS 32        /* stamps of a frame; a power of two */
#define FRAMES 65536     /* places for frames under way; a power of two */
#define FRAME_BITS 16
#define THREADS 65536    /* places for threads within a call; a power of two */
#define HEADS 8          /* frames that one receive call may copy; a power of two */
#define WAITING 2048     /* datagrams that wait at one socket; a power of two */
#define LOOKS 8          /* after this many receives the count of waiting datagrams is corrected */
#define SOCKETS 1024     /* UDP sockets that are looked at */
#define TCP 6
#define UDP 17
#define MPTCP 262
#define GSO_UDP_L4 (1 << 17)
#define ACCEPT_UDP_L4 (1UL << 5) /* in udp_flags: the reader accepts several datagrams at once (UDP_GRO) */
#define PEEK 2           /* MSG_PEEK: the datagram stays */
#define ERRQUEUE 0x2000  /* MSG_ERRQUEUE: the call reads an error, not a datagram */
#define CALLS 512        /* system call numbers that are tracked */
#define EVENTS 4         /* limit on events counted at once */
#define UNKNOWN (~0ULL)  /* a count that could not be read */
#define INTERRUPTED 2000 /* ns: a run that takes longer was interrupted */

enum point {
    SEND_ENTER = 1, TCP_SEND, QUEUE, QDISC_IN, QDISC_OUT, XMIT, XMIT_DONE,
    RX, RECEIVE, TCP_RECEIVE, READY, RECV_ENTER, COPY, COPIED, RECV_EXIT, IP_SEND,
    PART,                                   /* the first part is copied, and more is left */
};

enum probe {
    P_SYS_ENTER, P_SYS_EXIT, P_TCP_SEND, P_QUEUE, P_QDISC_IN, P_QDISC_OUT, P_XMIT, P_XMIT_DONE,
    P_NETIF_RX, P_GRO, P_RECEIVE, P_TCP_RECEIVE, P_READY, P_COPY, P_COPIED, P_RECV_LENGTH, P_FORK, P_IP_SEND, PROBES,
};

enum why { FOLLOWED = 1, SENT, REUSED, EVICTED };
enum { NO_CALL, SENDS, RECEIVES };
enum { SENDER = 1, RECEIVER = 2 };          /* flags: the ends that match the filter */
enum { TX = 1, RX_ONLY = 2, BOTH = 3 };

struct flow {
    __u8 source[16], destination[16];
    __u16 source_port, destination_port;    /* host order */
    __u16 ethertype;                        /* host order */
    __u8 protocol, ip_length, transport_length, pad;
    __u16 segment;                          /* payload of each datagram that the packet will be split into; else 0 */
    __u32 sequence;                         /* TCP sequence number; for UDP the digest of packet/src/identity.rs */
    __u32 payload;
    __u32 length;                           /* of the packet, from the IP header on */
};

struct frame {
    __u64 head;
    __u64 at[POINTS];
    __u8 point[POINTS];
    __u16 cpu[POINTS];
    __u32 parts;                            /* copies in which the program received it */
    __u32 copied, before;                   /* bytes that the program has received; the same before its last call */
    __u16 packets;                          /* datagrams in the packet */
    __u16 piece;                            /* number among those split at the socket, from 1; whole: count split off */
    struct flow flow;
    __u32 count;
    __u16 why, window;                      /* window: where tracing began */
    __u32 sender, sender_tid, receiver, receiver_tid;
    __u16 flags, queued;                    /* queued: lower 16 bits of its length at the device's queue */
    __u32 beyond;                           /* stamps beyond POINTS */
};

/* A stamp: the time, the CPU, and the event counters of that CPU. */
struct reading {
    __u64 at, cpu;
    __u64 counted[EVENTS];                  /* the first COUNTED entries; the rest is not written */
};

/* The event counts at each stamp of a frame. The index in `counts` is that of the frame in `frames`. */
struct counts {
    __u64 counted[POINTS][EVENTS];
};

/* A record with event counts. */
struct counted_frame {
    struct frame frame;
    struct counts counts;
};

struct thread {
    __u32 tid, call;
    struct reading entered, tcp_send, ip_send;
    __u64 sk;
    __u64 heads[HEADS];
    __u32 count;
    __u32 window;                           /* window in which it entered its call */
};

struct waiting {
    __u64 heads[WAITING];
    __u32 came, taken;
    __u32 looks;
    __s32 least, most;                      /* our count minus the socket's, over the last looks */
    __u32 pad;
};

struct cpu {
    __u64 hits[PROBES];
    __u64 spent[PROBES], timed[PROBES];     /* time of the timed runs in ns, and their number */
    __u64 handed, full, evicted, crowded;
    __u64 asked;                            /* frames that matched the filter */
    __u64 receiving, sending, whole;        /* heads that this CPU last handled; whole: a packet that may be split */
    __u64 held, held_head;                  /* a packet of several datagrams: its name, and the name of its buffer */
    __u64 pieces;                           /* number of names made by new_name() */
    __u64 address;                          /* see number() */
};

struct settings {
    __u64 until;                            /* new frames are traced before this time */
    __u32 mute;                             /* 1: hand nothing over */
    __u32 port;                             /* port of either end; 0: any */
    __u32 direction;                        /* TX, RX_ONLY, BOTH */
    __u32 by_family;                        /* only frames with an end in `family` */
    __u32 by_name;                          /* only frames with an end whose thread has this `name` */
    __u32 few;                              /* 1: few points, without system calls */
    __u64 name[2];
    __u32 window;                           /* how often the probes were detached so far */
    __u32 pad;
};

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, FRAMES); __type(key, __u32); __type(value, struct frame); } frames SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, THREADS); __type(key, __u32); __type(value, struct thread); } threads SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct cpu); } cpus SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct settings); } settings SEC(".maps");
/* LRU, so that ended processes make room for new ones. */
struct { __uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, 65536); __type(key, __u32); __type(value, __u32); } family SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, SOCKETS); __type(key, __u64); __type(value, struct waiting); } sockets SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 16 << 20); } records SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct counts); } counts SEC(".maps");
/* The counters of each event, by CPU. One map per event, because the loader limits such a map to one entry per CPU. */
struct event { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __uint(max_entries, 0); __uint(key_size, 4); __uint(value_size, 4); };
struct event event0 SEC(".maps"), event1 SEC(".maps"), event2 SEC(".maps"), event3 SEC(".maps");

/* Set by the loader. */
const volatile __u8 CALL[CALLS] = {};       /* the kind of each system call: NO_CALL, SENDS, RECEIVES */

const volatile __u32 COUNTED = 0;           /* number of counted events; `counts` has room for them */

_Static_assert(sizeof(struct flow) == 56, "src/record.rs reads it");
_Static_assert(sizeof(struct cpu) == 8 * (3 * PROBES + 12), "src/kernel/counters.rs reads it");
_Static_assert(sizeof(struct settings) == 56, "src/settings.rs writes it");
_Static_assert(sizeof(struct frame) == 8 + 11 * POINTS + 16 + 56 + 32, "src/record.rs reads it");
_Static_assert(sizeof(struct counted_frame) == sizeof(struct frame) + 8 * POINTS * EVENTS, "src/record.rs reads it");
_Static_assert(sizeof(struct waiting) == 8 * WAITING + 24, "src/kernel.rs knows its size");

#endif
