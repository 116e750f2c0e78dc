/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Traced frames: their slots, their stamps, and how they are handed over to user space. */
#ifndef NETLATHE_FRAMES_H
#define NETLATHE_FRAMES_H

#include "maps.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

static __always_inline struct cpu *this_cpu(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline struct settings *set(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&settings, &zero);
}

/* Counts a run of a probe. Times one run in sixteen, at random, because the cost of a probe changes with the machine's
 * pace. Ignores runs that were interrupted. */
static __always_inline int done(struct cpu *c, enum probe probe, __u64 now)
{
    c->hits[probe]++;
    if (!(now * 0x9E3779B97F4A7C15ULL >> 60)) {
        __u64 took = bpf_ktime_get_ns() - now;
        if (took < INTERRUPTED) {
            c->spent[probe] += took;
            c->timed[probe]++;
        }
    }
    return 0;
}

static __always_inline void count_one(struct reading *r, __u32 event, void *map)
{
    struct bpf_perf_event_value value = {};
    if (event < COUNTED)
        r->counted[event] = bpf_perf_event_read_value(map, (__u32)r->cpu, &value, sizeof(value)) ? UNKNOWN : value.counter;
}

/* If no events are counted, the verifier removes this code. */
static __always_inline void count(struct reading *r)
{
    count_one(r, 0, &event0);
    count_one(r, 1, &event1);
    count_one(r, 2, &event2);
    count_one(r, 3, &event3);
}

static __always_inline void keep(struct reading *to, const struct reading *r)
{
    to->at = r->at;
    to->cpu = r->cpu;
#pragma unroll
    for (__u32 e = 0; e < EVENTS; e++)
        if (e < COUNTED)
            to->counted[e] = r->counted[e];
}

/* Each program stamps first and works afterwards, so only the entry to the program lies before the stamp. A program
 * that acts only on traced frames looks the frame up first, because reading the clock is half of its cost. */
#define MAPS() struct cpu *c = this_cpu(); struct settings *s = set(); if (!c || !s) return 0
#define STAMP() struct reading now; now.at = bpf_ktime_get_ns(); now.cpu = bpf_get_smp_processor_id(); count(&now)
#define ENTER() STAMP(); MAPS()
#define LEAVE(probe) return done(c, probe, now.at)
/* For runs that split a packet: they take longer and must not count in the measured pace. */
#define LEAVE_UNTIMED(probe) return c->hits[probe]++, 0

/* Converts a pointer to a number. The verifier allows little arithmetic on pointers, but forgets that a value is a
 * pointer once it was stored in memory. A program in an interrupt may overwrite the memory between store and load, so
 * read twice, and once more if the results differ. */
static __always_inline __u64 number_once(struct cpu *c, void *pointer)
{
    *(void *volatile *)&c->address = pointer;
    return *(volatile __u64 *)&c->address;
}

static __always_inline __u64 number(struct cpu *c, void *pointer)
{
    __u64 first = number_once(c, pointer), second = number_once(c, pointer);
    return first == second ? first : number_once(c, pointer);
}

/* One of the two adjacent slots that a head may use. */
static __always_inline struct frame *place(__u64 head, __u32 second)
{
    __u32 index = (head * 0x9E3779B97F4A7C15ULL) >> (64 - FRAME_BITS);
    index ^= second;
    return bpf_map_lookup_elem(&frames, &index);
}

/* The name of a frame: the address of its buffer, with the number of the window in the upper bits, which are equal in
 * all addresses. Stored state of a head is therefore not valid in the next window. */
static __always_inline __u64 name_of(struct settings *s, __u64 head)
{
    return head ^ (__u64)s->window << 48;
}

static __always_inline __u64 head_of(struct cpu *c, struct settings *s, struct sk_buff *skb)
{
    return name_of(s, number(c, skb->head));
}

static __always_inline struct frame *followed(__u64 head)
{
    if (!head)
        return 0;
    struct frame *f = place(head, 0);
    if (f && f->head == head)
        return f;
    f = place(head, 1);
    return f && f->head == head ? f : 0;
}

/* Whether a slot is free. Frames of earlier windows are already counted and may be overwritten. */
static __always_inline bool is_free(struct settings *s, struct frame *f)
{
    return !f->count || f->window != (__u16)s->window;
}

/* Chooses the slot for a head: its present slot, else a free one, else that of a frame that does not match the filter
 * so far, else that of the older frame. */
static __always_inline struct frame *place_for(struct settings *s, __u64 head)
{
    struct frame *f = followed(head), *g;
    if (f)
        return f;
    f = place(head, 0);
    g = place(head, 1);
    if (!f || !g || is_free(s, f))
        return f;
    if (is_free(s, g) || !f->flags != !g->flags)
        return is_free(s, g) || f->flags ? g : f;
    return g->at[0] > f->at[0] ? f : g;
}

static __always_inline struct counts *counts_of(struct frame *f)
{
    __u32 index = (f->head * 0x9E3779B97F4A7C15ULL) >> (64 - FRAME_BITS);
    struct frame *first = bpf_map_lookup_elem(&frames, &index);
    index ^= first != f;
    return bpf_map_lookup_elem(&counts, &index);
}

static __always_inline void stamp(struct frame *f, enum point point, const struct reading *r)
{
    __u32 n = f->count;
    if (n >= POINTS) {
        f->beyond++;
        return;
    }
    n &= POINTS - 1;
    f->at[n] = r->at;
    f->point[n] = point;
    f->cpu[n] = r->cpu;
    f->count = n + 1;
    if (!COUNTED)
        return;
    struct counts *k = counts_of(f);
    if (!k)
        return;
#pragma unroll
    for (__u32 e = 0; e < EVENTS; e++)
        if (e < COUNTED)
            k->counted[n][e] = r->counted[e];
}

/* Reads the event counts at stamp `n`. */
static __always_inline void recall(struct frame *f, __u32 n, struct reading *r)
{
    struct counts *k = COUNTED ? counts_of(f) : 0;
#pragma unroll
    for (__u32 e = 0; e < EVENTS; e++)
        if (e < COUNTED)
            r->counted[e] = k ? k->counted[n][e] : UNKNOWN;
}

static __always_inline __u32 last(struct frame *f)
{
    __u32 n = f->count - 1;
    return n < POINTS ? f->point[n & (POINTS - 1)] : 0;
}

/* Whether the whole frame was copied to the program. */
static __always_inline bool is_read(struct frame *f)
{
    return f->parts && (__s32)(f->copied - f->flow.payload) >= 0;
}

static __always_inline bool asked_for(struct settings *s)
{
    __u64 name[2] = {};
    __u32 process = bpf_get_current_pid_tgid() >> 32;
    if (s->by_family && !bpf_map_lookup_elem(&family, &process))
        return 0;
    if (!s->by_name)
        return 1;
    bpf_get_current_comm(name, sizeof(name));
    return name[0] == s->name[0] && name[1] == s->name[1];
}

/* Records that one or both ends of the frame match the filter. */
static __always_inline void ask(struct cpu *c, struct frame *f, __u32 ends)
{
    if (!f->flags)
        c->asked += f->packets;
    f->flags |= ends;
}

static __always_inline long put(struct frame *f)
{
    if (!COUNTED)
        return bpf_ringbuf_output(&records, f, sizeof(*f), BPF_RB_NO_WAKEUP);
    struct counted_frame *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
    if (!r)
        return -1;
    bpf_probe_read_kernel(&r->frame, sizeof(r->frame), f);
    bpf_probe_read_kernel(&r->counts, sizeof(r->counts), counts_of(f));
    bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
    return 0;
}

static __always_inline void hand_over(struct cpu *c, struct settings *s, struct frame *f, enum why why)
{
    /* The frame was read, by a call that continues with other frames. */
    if (why == REUSED && (last(f) == COPY || last(f) == COPIED) && is_read(f)) {
        c->crowded++;
        why = FOLLOWED;
    }
    f->why = why;
    if (f->flags && !s->mute) {
        if (put(f))
            c->full += f->packets;
        else
            c->handed += f->packets;
    } else if (!s->mute && (why == REUSED || why == EVICTED) &&
               bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) < bpf_ringbuf_query(&records, BPF_RB_RING_SIZE) / 2) {
        /* Lost before it was known whether an end matches the filter. User space decides by its connection. Half of
         * the ring is reserved for frames that match. */
        put(f);
    }
    f->head = 0;
    f->count = 0;
}

static __always_inline __u16 gso_size(struct cpu *c, struct sk_buff *skb)
{
    struct skb_shared_info *info = (struct skb_shared_info *)(number(c, skb->head) + skb->end);
    __u16 size = 0;
    bpf_core_read(&size, sizeof(size), &info->gso_size);
    return size;
}

/* The payload of each datagram that a packet will be split into. 0 if the packet will not be split. */
static __always_inline __u16 segment_of(struct cpu *c, struct sk_buff *skb)
{
    struct skb_shared_info *info = (struct skb_shared_info *)(number(c, skb->head) + skb->end);
    __u32 type = 0;
    bpf_core_read(&type, sizeof(type), &info->gso_type);
    return type & GSO_UDP_L4 ? gso_size(c, skb) : 0;
}

/* Reads the headers of a packet whose IP header is at `ip`. Returns 0 if the packet has TCP or UDP payload and the
 * asked port, else -1. */
static __always_inline int read_flow(struct cpu *c, struct settings *s, struct sk_buff *skb, __u64 ip, struct flow *flow)
{
    __u8 header[40] __attribute__((aligned(8)));
    __u32 before = ip - number(c, skb->data), transport, said;
    flow->ethertype = bpf_ntohs(skb->protocol);
    flow->length = skb->len - before;
    if (flow->ethertype == 0x0800) {
        if (bpf_probe_read_kernel(header, 20, (void *)ip))
            return -1;
        if ((header[6] & 0x1f) | header[7])
            return -1;                      /* a later fragment has no ports */
        said = header[2] << 8 | header[3];
        flow->protocol = header[9];
        flow->ip_length = (header[0] & 15) * 4;
        __builtin_memcpy(flow->source, header + 12, 4);
        __builtin_memcpy(flow->destination, header + 16, 4);
    } else if (flow->ethertype == 0x86dd) {
        if (bpf_probe_read_kernel(header, 40, (void *)ip))
            return -1;
        said = header[4] << 8 | header[5];
        if (said)
            said += 40;
        flow->protocol = header[6];
        flow->ip_length = 40;
        __builtin_memcpy(flow->source, header + 8, 16);
        __builtin_memcpy(flow->destination, header + 24, 16);
        /* Hop-by-hop options, as in packets longer than 64 KiB that are still to be split (BIG TCP). */
        if (!flow->protocol) {
            if (bpf_probe_read_kernel(header, 8, (void *)(ip + 40)))
                return -1;
            flow->protocol = header[0];
            flow->ip_length = 48 + 8 * header[1];
        }
    } else {
        return -1;
    }
    if (flow->protocol != 6 && flow->protocol != UDP)
        return -1;
    /* The frame of a short packet is padded. A long packet that is still to be split has an IP length of 0. */
    if (said && said < flow->length)
        flow->length = said;
    /* For a datagram also read the first eight bytes of payload. Bytes beyond a shorter payload are masked below. */
    __u16 id = flow->ethertype == 0x0800 ? header[4] << 8 | header[5] : 0;
    if (bpf_probe_read_kernel(header, 16, (void *)(ip + flow->ip_length)))
        return -1;
    flow->source_port = header[0] << 8 | header[1];
    flow->destination_port = header[2] << 8 | header[3];
    if (s->port && flow->source_port != s->port && flow->destination_port != s->port)
        return -1;
    flow->transport_length = 8;
    if (flow->protocol == 6) {
        flow->transport_length = (header[12] >> 4) * 4;
        flow->sequence = (__u32)header[4] << 24 | header[5] << 16 | header[6] << 8 | header[7];
    }
    transport = flow->ip_length + flow->transport_length;
    if (flow->length <= transport)
        return -1;
    flow->payload = flow->length - transport;
    if (flow->protocol == UDP) {
        __u64 first = bpf_be64_to_cpu(*(__u64 *)(header + 8));
        if (flow->payload < 8)
            first &= ~0ULL << (8 * (8 - flow->payload));
        flow->sequence = ((first ^ (__u64)id << 48) * 0x9E3779B97F4A7C15ULL) >> 32;
        flow->segment = segment_of(c, skb);
        if (flow->segment >= flow->payload)
            flow->segment = 0;
    }
    return 0;
}

/* Starts to trace a frame at time `at`. Gives up the frame that was in its slot. */
static __always_inline struct frame *begin(struct cpu *c, struct settings *s, __u64 head, struct flow *flow, __u64 at)
{
    struct frame *f = place_for(s, head);
    bool closed = at >= s->until;
    if (!f)
        return 0;
    if (!is_free(s, f)) {
        if (f->head == head) {
            hand_over(c, s, f, REUSED);
        } else if (!closed) {
            c->evicted += f->packets;
            hand_over(c, s, f, EVICTED);
        }
    }
    if (closed)
        return 0;
    f->head = head;
    f->window = s->window;
    f->count = 0;
    f->flow = *flow;
    f->sender = f->sender_tid = f->receiver = f->receiver_tid = f->beyond = 0;
    f->parts = f->copied = f->before = f->piece = 0;
    f->packets = flow->segment ? (flow->payload + flow->segment - 1) / flow->segment : 1;
    f->flags = 0;
    if (!s->by_family && !s->by_name)
        ask(c, f, SENDER | RECEIVER);
    return f;
}

static __always_inline bool same(const struct flow *a, const struct flow *b)
{
    return a->sequence == b->sequence && a->payload == b->payload && a->source_port == b->source_port &&
           a->destination_port == b->destination_port;
}

/* Stamps a frame at the queue of a device. */
static __always_inline void queue(struct cpu *c, struct settings *s, struct frame *f, struct sk_buff *skb,
                                  const struct reading *now)
{
    stamp(f, QUEUE, now);
    f->queued = skb->len;
    /* With few points, the pieces of a long packet are first seen when they are received. Other packets may be queued
     * before that. */
    if (!s->few || gso_size(c, skb))
        c->whole = f->head;
}

/* Whether this is the frame that was queued: it has the same length, or is longer by a VLAN tag. A frame may reach the
 * driver twice if the driver had no room the first time. */
static __always_inline bool is_queued(struct frame *f, struct sk_buff *skb)
{
    __u32 point = last(f);
    __u16 more = skb->len - f->queued;
    return (point == QUEUE || point == QDISC_IN || point == QDISC_OUT || point == XMIT) && (more == 0 || more == 4);
}

/* A name for a frame without its own buffer. It is odd, because buffers have even addresses. */
static __always_inline __u64 new_name(struct cpu *c, struct settings *s)
{
    return name_of(s, (__u64)bpf_get_smp_processor_id() << 36 | c->pieces++ << 1 | 1);
}

/* Copies the stamps of another frame, its sender, and whether it matches the filter. */
static __always_inline void same_way(struct cpu *c, struct frame *f, struct frame *whole)
{
    for (__u32 n = 0; n < POINTS; n++) {
        if (n >= whole->count)
            break;
        struct reading then = { .at = whole->at[n], .cpu = whole->cpu[n] };
        recall(whole, n, &then);
        stamp(f, whole->point[n], &then);
    }
    f->sender = whole->sender;
    f->sender_tid = whole->sender_tid;
    if (whole->flags)
        ask(c, f, whole->flags);
}

/* Frees the slot of a frame without handing it over. */
static __always_inline void forget(struct cpu *c, struct frame *f)
{
    if (f->flags)
        c->asked -= f->packets;
    f->head = 0;
    f->count = 0;
}

/* Continues to trace a frame under another name. */
static __always_inline struct frame *rename(struct cpu *c, struct settings *s, struct frame *whole, __u64 name)
{
    struct flow flow = whole->flow;
    __u16 packets = whole->packets;
    struct frame *f = begin(c, s, name, &flow, 0);
    if (!f || f == whole)
        return 0;
    f->packets = packets;
    same_way(c, f, whole);
    forget(c, whole);
    return f;
}

/* Removes one datagram from the unsplit packet. */
static __always_inline void less(struct cpu *c, struct frame *whole, __u32 payload)
{
    if (whole->flags)
        c->asked--;
    whole->packets--;
    whole->piece++;
    whole->flow.payload -= payload;
    whole->flow.length -= payload;
}

/* Starts to trace a piece of a long packet. The kernel splits a packet before the driver if the device cannot. Each
 * piece has its own buffer and takes over the stamps of the whole. TCP pieces are recognised by their sequence numbers;
 * datagrams come in order. */
static __always_inline struct frame *cut(struct cpu *c, struct settings *s, struct sk_buff *skb, __u64 head, __u64 ip)
{
    struct frame *whole = followed(c->whole);
    struct flow flow = {};
    __u32 at = whole ? last(whole) : 0;
    if ((at != QUEUE && at != QDISC_IN && at != QDISC_OUT) || whole->head == head || read_flow(c, s, skb, ip, &flow))
        return 0;
    bool udp = whole->flow.protocol == UDP;
    __u32 from = udp ? 0 : flow.sequence - whole->flow.sequence;
    if (flow.protocol != whole->flow.protocol || flow.source_port != whole->flow.source_port ||
        flow.destination_port != whole->flow.destination_port || from >= whole->flow.payload ||
        (udp && (!whole->flow.segment || flow.payload > whole->flow.segment)))
        return 0;
    struct frame *f = begin(c, s, head, &flow, whole->at[0]);
    if (!f || f == whole)
        return 0;
    same_way(c, f, whole);
    f->queued = skb->len;
    if (udp)
        less(c, whole, flow.payload);
    if (udp ? !whole->packets : from + flow.payload >= whole->flow.payload) {
        forget(c, whole);
        c->whole = 0;
    }
    return f;
}

/* Gives a packet of several datagrams a name without a buffer. The kernel splits it at the socket, and frees its buffer
 * before the first datagram reaches the socket. */
static __always_inline void hold(struct cpu *c, struct settings *s, struct frame *f)
{
    c->held_head = f->head;
    f = rename(c, s, f, new_name(c, s));
    c->held = f ? f->head : 0;
}

/* Gives a held packet its buffer's name again if it is not for a socket here: it continues through a device on top of
 * this device, or to the next device. */
static __always_inline struct frame *held_again(struct cpu *c, struct settings *s, __u64 head)
{
    struct frame *whole = c->held && c->held_head == head ? followed(c->held) : 0;
    if (!whole || whole->piece)
        return 0;
    c->held = 0;
    return rename(c, s, whole, head);
}

/* Gives up the held packet, because another packet arrives. Datagrams that have not reached a socket by now were
 * dropped, or the packet waits elsewhere. */
static __always_inline void let_go(struct cpu *c, struct settings *s)
{
    struct frame *whole = followed(c->held);
    c->held = 0;
    if (!whole)
        return;
    if (whole->piece || followed(c->held_head))
        hand_over(c, s, whole, REUSED);
    else
        rename(c, s, whole, c->held_head);
}

/* The frame that reaches the socket: one datagram of the held packet, or the whole packet if the socket accepts it. */
static __always_inline struct frame *held_piece(struct cpu *c, struct settings *s, struct sock *sk)
{
    struct frame *whole = followed(c->held);
    if (!whole || whole->flow.destination_port != sk->__sk_common.skc_num)
        return 0;
    struct udp_sock *up = (struct udp_sock *)number(c, sk);
    unsigned long flags = 0;
    if (bpf_core_field_exists(up->udp_flags))
        bpf_core_read(&flags, sizeof(flags), &up->udp_flags);
    if (flags & ACCEPT_UDP_L4) {
        c->held = 0;
        return whole;
    }
    struct flow flow = whole->flow;
    if (whole->packets > 1) {
        flow.payload = flow.segment;
        flow.length = flow.ip_length + flow.transport_length + flow.segment;
    }
    flow.segment = 0;
    struct frame *f = begin(c, s, new_name(c, s), &flow, 0);
    if (!f || f == whole)
        return 0;
    same_way(c, f, whole);
    less(c, whole, flow.payload);
    f->piece = whole->piece;
    if (!whole->packets) {
        forget(c, whole);
        c->held = 0;
    }
    return f;
}

#endif
