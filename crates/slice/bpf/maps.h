/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records, settings and maps. What src/record.rs reads and src/settings.rs writes: they change together. */
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
#define ACCEPT_UDP_L4 (1UL << 5) /* of udp_flags: its reader takes several datagrams at once (UDP_GRO) */
#define PEEK 2           /* MSG_PEEK: the datagram stays */
#define ERRQUEUE 0x2000  /* MSG_ERRQUEUE: what is read is not a datagram */
#define CALLS 512        /* system call numbers that are looked at */
#define EVENTS 4         /* events that are counted at once */
#define UNKNOWN (~0ULL)  /* a count that could not be read */
#define INTERRUPTED 2000 /* ns: no program runs for so long by itself */

enum point {
    SEND_ENTER = 1, TCP_SEND, QUEUE, QDISC_IN, QDISC_OUT, XMIT, XMIT_DONE,
    RX, RECEIVE, TCP_RECEIVE, READY, RECV_ENTER, COPY, COPIED, RECV_EXIT, IP_SEND,
    PART,                                   /* its first part is copied, and more is left */
};

enum probe {
    P_SYS_ENTER, P_SYS_EXIT, P_TCP_SEND, P_QUEUE, P_QDISC_IN, P_QDISC_OUT, P_XMIT, P_XMIT_DONE,
    P_NETIF_RX, P_GRO, P_RECEIVE, P_TCP_RECEIVE, P_READY, P_COPY, P_COPIED, P_RECV_LENGTH, P_FORK, P_IP_SEND, PROBES,
};

enum why { FOLLOWED = 1, SENT, REUSED, EVICTED };
enum { NO_CALL, SENDS, RECEIVES };
enum { SENDER = 1, RECEIVER = 2 };          /* flags: which end is one that was asked for */
enum { TX = 1, RX_ONLY = 2, BOTH = 3 };

struct flow {
    __u8 source[16], destination[16];
    __u16 source_port, destination_port;    /* host order */
    __u16 ethertype;                        /* host order */
    __u8 protocol, ip_length, transport_length, pad;
    __u16 segment;                          /* payload of each datagram that it is still to be cut into; else 0 */
    __u32 sequence;                         /* TCP's; of UDP a digest, as packet::digest has it */
    __u32 payload;
    __u32 length;                           /* of the packet, from the IP header on */
};

struct frame {
    __u64 head;
    __u64 at[POINTS];
    __u8 point[POINTS];
    __u16 cpu[POINTS];
    __u32 parts;                            /* copies in which the program took it */
    __u32 copied, before;                   /* bytes of it that the program has taken; before its last call */
    __u16 packets;                          /* datagrams that it stands for */
    __u16 piece;                            /* its number among those cut at the socket, from 1; of the whole, how many were cut */
    struct flow flow;
    __u32 count;
    __u16 why, window;                      /* window: in which it was begun */
    __u32 sender, sender_tid, receiver, receiver_tid;
    __u16 flags, queued;                    /* queued: the lower half of its length at the device's queue */
    __u32 beyond;                           /* stamps for which there was no room */
};

/* A stamp: when, on which CPU, and what that CPU's counters say. */
struct reading {
    __u64 at, cpu;
    __u64 counted[EVENTS];                  /* as many as COUNTED; the rest is not written */
};

/* What was counted up to each stamp of a frame, in the place that the frame has. */
struct counts {
    __u64 counted[POINTS][EVENTS];
};

/* A record, where events are counted. */
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
    __u32 window;                           /* in which it entered its call */
};

struct waiting {
    __u64 heads[WAITING];
    __u32 came, taken;
    __u32 looks;
    __s32 least, most;                      /* by how many more wait here than at the socket, at the last looks */
    __u32 pad;
};

struct cpu {
    __u64 hits[PROBES];
    __u64 spent[PROBES], timed[PROBES];     /* ns of the runs that were timed, and how many */
    __u64 handed, full, evicted, crowded;
    __u64 asked;                            /* frames that turned out to be asked for */
    __u64 receiving, sending, whole;        /* heads that this CPU last handled; whole: a packet that may be cut */
    __u64 held, held_head;                  /* datagrams that are received as one: its name, and that of its buffer */
    __u64 pieces;                           /* named so far */
    __u64 address;                          /* see number() */
};

struct settings {
    __u64 until;                            /* frames begin to be followed before this time */
    __u32 mute;                             /* hand nothing over */
    __u32 port;                             /* of either end; 0 is any */
    __u32 direction;                        /* TX, RX_ONLY, BOTH */
    __u32 by_family;                        /* only frames with an end in `family` */
    __u32 by_name;                          /* only frames with an end whose thread is called `name` */
    __u32 few;                              /* system calls are not traced, nor all of the way */
    __u64 name[2];
    __u32 window;                           /* how often the probes were taken away so far */
    __u32 pad;
};

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, FRAMES); __type(key, __u32); __type(value, struct frame); } frames SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, THREADS); __type(key, __u32); __type(value, struct thread); } threads SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct cpu); } cpus SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct settings); } settings SEC(".maps");
/* Processes that are no more make room for others. */
struct { __uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, 65536); __type(key, __u32); __type(value, __u32); } family SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, SOCKETS); __type(key, __u64); __type(value, struct waiting); } sockets SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 16 << 20); } records SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct counts); } counts SEC(".maps");
/* The counters of each event, by CPU: the loader has no more places than CPUs in a map of them. */
struct event { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __uint(max_entries, 0); __uint(key_size, 4); __uint(value_size, 4); };
struct event event0 SEC(".maps"), event1 SEC(".maps"), event2 SEC(".maps"), event3 SEC(".maps");

/* Set by the loader. */
const volatile __u8 CALL[CALLS] = {};       /* what each system call does: NO_CALL, SENDS, RECEIVES */

const volatile __u32 COUNTED = 0;           /* events that are counted; `counts` has room for them */

_Static_assert(sizeof(struct flow) == 56, "src/record.rs reads it");
_Static_assert(sizeof(struct cpu) == 8 * (3 * PROBES + 12), "src/kernel/counters.rs reads it");
_Static_assert(sizeof(struct settings) == 56, "src/settings.rs writes it");
_Static_assert(sizeof(struct frame) == 8 + 11 * POINTS + 16 + 56 + 32, "src/record.rs reads it");
_Static_assert(sizeof(struct counted_frame) == sizeof(struct frame) + 8 * POINTS * EVENTS, "src/record.rs reads it");
_Static_assert(sizeof(struct waiting) == 8 * WAITING + 24, "src/kernel.rs knows its size");

#endif
