/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which datagram a receive call takes: UDP does not say, so those that wait at each socket are kept in order. */
#ifndef NETLATHE_DATAGRAMS_H
#define NETLATHE_DATAGRAMS_H

#include "frames.h"

/* Datagrams at a socket, including those that its reader has peeked at before. */
static __always_inline __u32 queued(struct cpu *c, struct sock *sk)
{
    struct udp_sock *up = (struct udp_sock *)number(c, sk);
    __u32 before = 0;
    /* If that cannot be read, there are none. */
    bpf_core_read(&before, sizeof(before), &up->reader_queue.qlen);
    return before + sk->sk_receive_queue.qlen;
}

/* A datagram waits at a socket; 0 is one that is not followed. */
static __always_inline void waits(struct cpu *c, struct sock *sk, __u64 head)
{
    static const struct waiting none;
    __u64 key = number(c, sk);
    struct waiting *w = bpf_map_lookup_elem(&sockets, &key);
    if (!w) {
        bpf_map_update_elem(&sockets, &key, &none, BPF_ANY);
        w = bpf_map_lookup_elem(&sockets, &key);
        /* Others may have waited there before the probes came; this one is queued already. */
        __u32 before = queued(c, sk);
        if (w && before)
            w->came = before - 1;
    }
    if (w) {
        w->heads[w->came & (WAITING - 1)] = head;
        w->came++;
    }
}

/* What came or was read while the probes were not attached, or at another socket of the same address, was not counted.
 * The socket itself knows how many wait. Between its count and ours lie datagrams that other CPUs are bringing or taking
 * at this moment, so one look says little: but what all of several say is wrong with ours. */
static __always_inline void set_right(struct cpu *c, struct waiting *w, struct sock *sk)
{
    /* The one that is just being received has left the queues. */
    __s32 more = w->came - w->taken - queued(c, sk) - 1;
    if (!w->looks || more < w->least)
        w->least = more;
    if (!w->looks || more > w->most)
        w->most = more;
    if (++w->looks < LOOKS)
        return;
    w->looks = 0;
    if (w->least > 0)
        w->taken += w->least;
    else if (w->most < 0)
        w->taken += w->most;
}

/* The datagram that a socket's reader gets next, and no more. */
static __always_inline __u64 first_waiting(struct cpu *c, struct sock *sk)
{
    __u64 key = number(c, sk);
    struct waiting *w = bpf_map_lookup_elem(&sockets, &key);
    if (!w)
        return 0;
    set_right(c, w, sk);
    if (w->taken == w->came)
        return 0;
    __u32 n = w->taken++;
    /* More than there is room for have come since: it is not known any more. */
    if (w->came - n > WAITING)
        return 0;
    __u64 head = w->heads[n & (WAITING - 1)];
    w->heads[n & (WAITING - 1)] = 0;
    return head;
}

#endif
