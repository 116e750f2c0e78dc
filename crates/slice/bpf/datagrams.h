/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Finds the datagram that a receive call takes. UDP does not report it, so we keep a queue of the datagrams that wait
 * at each socket. */
#ifndef NETLATHE_DATAGRAMS_H
#define NETLATHE_DATAGRAMS_H

#include "frames.h"

/* Number of datagrams queued at a socket, including those that the reader has moved to reader_queue. */
static __always_inline __u32 queued(struct cpu *c, struct sock *sk)
{
    struct udp_sock *up = (struct udp_sock *)number(c, sk);
    __u32 before = 0;
    /* If the length of reader_queue cannot be read, it counts as 0. */
    bpf_core_read(&before, sizeof(before), &up->reader_queue.qlen);
    return before + sk->sk_receive_queue.qlen;
}

/* Records that a datagram waits at a socket. `head` is 0 for a datagram that is not traced. */
static __always_inline void waits(struct cpu *c, struct sock *sk, __u64 head)
{
    static const struct waiting none;
    __u64 key = number(c, sk);
    struct waiting *w = bpf_map_lookup_elem(&sockets, &key);
    if (!w) {
        bpf_map_update_elem(&sockets, &key, &none, BPF_ANY);
        w = bpf_map_lookup_elem(&sockets, &key);
        /* Datagrams may have waited there before the probes were attached. `before` includes the present one. */
        __u32 before = queued(c, sk);
        if (w && before)
            w->came = before - 1;
    }
    if (w) {
        w->heads[w->came & (WAITING - 1)] = head;
        w->came++;
    }
}

/* Corrects our count of waiting datagrams by that of the socket. Our count misses datagrams that came or were read
 * while the probes were detached, or at another socket at the same address. One comparison is not reliable, because
 * other CPUs may be adding or removing datagrams at this moment. A difference that all of LOOKS comparisons show is an
 * error of our count. */
static __always_inline void set_right(struct cpu *c, struct waiting *w, struct sock *sk)
{
    /* The datagram that is being received has already left the queues. */
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

/* Removes and returns the datagram that the reader of a socket gets next. 0 if it is unknown or not traced. */
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
    /* More than WAITING datagrams have come since, so its entry was overwritten. */
    if (w->came - n > WAITING)
        return 0;
    __u64 head = w->heads[n & (WAITING - 1)];
    w->heads[n & (WAITING - 1)] = 0;
    return head;
}

#endif
