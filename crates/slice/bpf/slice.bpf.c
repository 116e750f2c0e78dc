/* The kernel's part of netlathe slice: stamps of a frame at the points that the kernel's own tracepoints mark.
 *
 * A frame is known by skb->head, which its clones share: TCP sends a clone and keeps the original, and on loopback
 * and veth the receiver gets the very buffer that the sender wrote. Each frame that is followed has a place in
 * `frames`, chosen by a hash of that address. It is handed over, whole, when the call that copied it to the
 * application returns; when its buffer is seen at the start of another journey; or when its place is needed.
 *
 * What is written here is read by src/record.rs: the two change together. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#define POINTS 32        /* stamps of a frame; a power of two */
#define FRAMES 65536     /* places for frames under way; a power of two */
#define FRAME_BITS 16
#define THREADS 65536    /* places for threads within a call; a power of two */
#define HEADS 8          /* frames that one receive call may copy; a power of two */
#define WAITING 512      /* datagrams that wait at one socket; a power of two */
#define LOOKS 8          /* after so many receives the count of those that wait is set right */
#define SOCKETS 1024     /* UDP sockets that are looked at */
#define UDP 17
#define PEEK 2           /* MSG_PEEK */
#define CALLS 512        /* system call numbers that are looked at */
#define EVENTS 4         /* events that are counted at once */
#define UNKNOWN (~0ULL)  /* a count that could not be read */
#define INTERRUPTED 2000 /* ns: no program runs for so long by itself */

enum point {
    SEND_ENTER = 1, TCP_SEND, QUEUE, QDISC_IN, QDISC_OUT, XMIT, XMIT_DONE,
    RX, RECEIVE, TCP_RECEIVE, READY, RECV_ENTER, COPY, COPIED, RECV_EXIT, IP_SEND,
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
    __u8 protocol, ip_length, transport_length, pad[3];
    __u32 sequence;                         /* TCP's; of UDP a digest, as packet::digest has it */
    __u32 payload;
    __u32 length;                           /* of the packet, from the IP header on */
};

struct frame {
    __u64 head;
    __u64 at[POINTS];
    __u8 point[POINTS];
    __u8 cpu[POINTS];
    struct flow flow;
    __u32 count;
    __u16 why, window;                      /* window: in which it was begun */
    __u32 sender, sender_tid, receiver, receiver_tid;
    __u32 flags, beyond;                    /* beyond: stamps for which there was no room */
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
    __u64 receiving, sending;               /* heads that this CPU last handled */
    __u64 address;                          /* see number() */
};

struct settings {
    __u32 mute;                             /* hand nothing over */
    __u32 closed;                           /* no frame begins to be followed */
    __u32 port;                             /* of either end; 0 is any */
    __u32 direction;                        /* TX, RX_ONLY, BOTH */
    __u32 by_family;                        /* only frames with an end in `family` */
    __u32 by_name;                          /* only frames with an end whose thread is called `name` */
    __u64 name[2];
    __u32 few;                              /* system calls are not traced, nor all of the way */
    __u32 window;                           /* how often the probes were taken away so far */
};

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, FRAMES); __type(key, __u32); __type(value, struct frame); } frames SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, THREADS); __type(key, __u32); __type(value, struct thread); } threads SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct cpu); } cpus SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct settings); } settings SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 65536); __type(key, __u32); __type(value, __u32); } family SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, SOCKETS); __type(key, __u64); __type(value, struct waiting); } sockets SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 16 << 20); } records SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct counts); } counts SEC(".maps");
/* The counters of each event, by CPU: the loader has no more places than CPUs in a map of them. */
struct event { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __uint(max_entries, 0); __uint(key_size, 4); __uint(value_size, 4); };
struct event event0 SEC(".maps"), event1 SEC(".maps"), event2 SEC(".maps"), event3 SEC(".maps");

/* Set by the loader. */
const volatile __u8 CALL[CALLS] = {};       /* what each system call does: NO_CALL, SENDS, RECEIVES */

const volatile __u32 COUNTED = 0;           /* events that are counted; `counts` has room for them */

char LICENSE[] SEC("license") = "Dual MIT/GPL";

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

/* One run in sixteen, by chance, is timed: what a program costs changes with the machine's pace. An interruption is no
 * cost of a program. */
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

/* Where nothing is counted, the verifier takes this out. */
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

/* Each program begins with the stamp, so that its own work lies behind it: what comes before is the way into it. Where
 * only a frame that is followed matters, that is asked first: the clock is half of what a program costs. */
#define MAPS() struct cpu *c = this_cpu(); struct settings *s = set(); if (!c || !s) return 0
#define STAMP() struct reading now; now.at = bpf_ktime_get_ns(); now.cpu = bpf_get_smp_processor_id(); count(&now)
#define ENTER() STAMP(); MAPS()
#define LEAVE(probe) return done(c, probe, now.at)

/* An address as a number to reckon with. To the verifier it stays a pointer, of which it allows little, until
 * it has been in memory. An interrupt may write there between, with programs of its own: hence twice, and if the two
 * differ once more. */
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

/* Each head has two places, side by side, of which it takes one. */
static __always_inline struct frame *place(__u64 head, __u32 second)
{
    __u32 index = (head * 0x9E3779B97F4A7C15ULL) >> (64 - FRAME_BITS);
    index ^= second;
    return bpf_map_lookup_elem(&frames, &index);
}

/* A frame's name: the address of its buffer, and in the bits that all addresses have in common the window in which it
 * is followed, so that what is remembered of a head means nothing in the next window. */
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

/* What an earlier window left behind is counted already, and makes room. */
static __always_inline bool is_free(struct settings *s, struct frame *f)
{
    return !f->count || f->window != (__u16)s->window;
}

/* A place for a head: its own, else one that is free, else that of a frame that nobody asked for so far, else that of
 * the older frame. */
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

static __always_inline __u32 last(struct frame *f)
{
    __u32 n = f->count - 1;
    return n < POINTS ? f->point[n & (POINTS - 1)] : 0;
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

/* One end of the frame, or both, is one that was asked for. */
static __always_inline void ask(struct cpu *c, struct frame *f, __u32 ends)
{
    if (!f->flags)
        c->asked++;
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
    f->why = why;
    if (f->flags && !s->mute) {
        if (put(f))
            c->full++;
        else
            c->handed++;
    }
    f->head = 0;
    f->count = 0;
}

/* Reads the packet's headers, of which the IP header lies at `ip`; 0 if it has a payload of TCP or UDP. */
static __always_inline int read_flow(struct cpu *c, struct settings *s, struct sk_buff *skb, __u64 ip, struct flow *flow)
{
    __u8 header[40] __attribute__((aligned(8)));
    __u32 before = ip - number(c, skb->data), transport;
    flow->ethertype = bpf_ntohs(skb->protocol);
    flow->length = skb->len - before;
    if (flow->ethertype == 0x0800) {
        if (bpf_probe_read_kernel(header, 20, (void *)ip))
            return -1;
        if ((header[6] & 0x1f) | header[7])
            return -1;                      /* a later fragment has no ports */
        flow->protocol = header[9];
        flow->ip_length = (header[0] & 15) * 4;
        __builtin_memcpy(flow->source, header + 12, 4);
        __builtin_memcpy(flow->destination, header + 16, 4);
    } else if (flow->ethertype == 0x86dd) {
        if (bpf_probe_read_kernel(header, 40, (void *)ip))
            return -1;
        flow->protocol = header[6];
        flow->ip_length = 40;
        __builtin_memcpy(flow->source, header + 8, 16);
        __builtin_memcpy(flow->destination, header + 24, 16);
    } else {
        return -1;
    }
    if (flow->protocol != 6 && flow->protocol != UDP)
        return -1;
    /* Of a datagram, the first eight bytes of payload, too; where it is shorter, what lies behind it is cut off below. */
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
    }
    return 0;
}

/* Begins to follow a frame; what was in its place is given up. */
static __always_inline struct frame *begin(struct cpu *c, struct settings *s, __u64 head, struct flow *flow)
{
    struct frame *f = place_for(s, head);
    if (!f)
        return 0;
    if (!is_free(s, f)) {
        if (f->head == head) {
            hand_over(c, s, f, REUSED);
        } else if (!s->closed) {
            c->evicted++;
            hand_over(c, s, f, EVICTED);
        }
    }
    if (s->closed)
        return 0;
    f->head = head;
    f->window = s->window;
    f->count = 0;
    f->flow = *flow;
    f->sender = f->sender_tid = f->receiver = f->receiver_tid = f->beyond = 0;
    f->flags = 0;
    if (!s->by_family && !s->by_name)
        ask(c, f, SENDER | RECEIVER);
    return f;
}

static __always_inline struct thread *this_thread(void)
{
    __u32 tid = bpf_get_current_pid_tgid(), index = tid & (THREADS - 1);
    struct thread *t = bpf_map_lookup_elem(&threads, &index);
    return t && t->tid == tid ? t : 0;
}

/* Within a call that sends, and whose beginning was seen. */
static __always_inline bool sends(struct settings *s, struct thread *t)
{
    return t->call == SENDS && t->window == s->window;
}

/* All calls of the machine come by here, and a thread that is preempted within the program keeps it from running for
 * others on its CPU: what is of no interest leaves at once, uncounted. */
SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long id)
{
    __u32 call = (__u64)id < CALLS ? CALL[id & (CALLS - 1)] : NO_CALL;
    if (call == NO_CALL)
        return 0;
    ENTER();
    __u32 tid = bpf_get_current_pid_tgid(), index = tid & (THREADS - 1);
    struct thread *t = bpf_map_lookup_elem(&threads, &index);
    if (t) {
        t->tid = tid;
        t->call = call;
        t->window = s->window;
        keep(&t->entered, &now);
        t->tcp_send.at = 0;
        t->ip_send.at = 0;
        t->sk = 0;
        t->count = 0;
    }
    LEAVE(P_SYS_ENTER);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long ret)
{
    struct thread *t = this_thread();
    if (!t || t->call == NO_CALL)
        return 0;
    ENTER();
    t->call = NO_CALL;
    for (__u32 i = 0; i < HEADS; i++) {
        if (i >= t->count)
            break;
        struct frame *f = followed(t->heads[i]);
        if (f) {
            stamp(f, RECV_EXIT, &now);
            hand_over(c, s, f, FOLLOWED);
        }
    }
    t->count = 0;
    LEAVE(P_SYS_EXIT);
}

/* TCP takes data from the caller; once for each buffer of a long write, of which the first counts. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(on_tcp_send, struct sock *sk, struct msghdr *msg, struct sk_buff *skb, int goal)
{
    MAPS();
    __u32 tid = bpf_get_current_pid_tgid(), index = tid & (THREADS - 1);
    struct thread *t = bpf_map_lookup_elem(&threads, &index);
    if (!t)
        return 0;
    if (s->few && (t->tid != tid || t->window != s->window)) {
        /* Nobody told of its call: it is one that sends, or it would not come by. */
        t->tid = tid;
        t->call = SENDS;
        t->window = s->window;
        t->entered.at = t->ip_send.at = t->sk = 0;
    }
    if (t->tid != tid || !sends(s, t) || t->sk == number(c, sk))
        return 0;
    STAMP();
    t->sk = number(c, sk);
    keep(&t->tcp_send, &now);
    LEAVE(P_TCP_SEND);
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(on_queue, struct sk_buff *skb)
{
    ENTER();
    __u64 head = number(c, skb->head), name = name_of(s, head);
    struct sock *sk = skb->sk;
    struct frame *f = followed(name);
    /* Without a socket it is on its way through a bridge or router; right after a driver took it, a device within
     * a device queues it. Anything else is a new journey of the same buffer: a retransmission, or after a loss. */
    if (f && (!sk || last(f) == XMIT)) {
        stamp(f, QUEUE, &now);
        LEAVE(P_QUEUE);
    }
    if (!sk || s->direction == RX_ONLY)
        LEAVE(P_QUEUE);
    struct flow flow = {};
    f = read_flow(c, s, skb, head + skb->network_header, &flow) ? 0 : begin(c, s, name, &flow);
    if (!f)
        LEAVE(P_QUEUE);
    struct thread *t = this_thread();
    /* A frame that leaves in a softirq, on top of whatever runs, is not of that thread's call. */
    if (s->few) {
        /* The call is known by TCP's stamp alone, which counts for the packet behind it. A datagram is sent by who
         * runs. */
        bool called = t && sends(s, t) && t->sk == number(c, sk);
        __u64 ids = bpf_get_current_pid_tgid();
        if (called) {
            stamp(f, TCP_SEND, &t->tcp_send);
            t->sk = 0;
        }
        if (called || f->flow.protocol == UDP) {
            f->sender = ids >> 32;
            f->sender_tid = ids;
            if (asked_for(s))
                ask(c, f, SENDER);
        }
    } else if (t && sends(s, t) && (f->flow.protocol == UDP || t->sk == number(c, sk))) {
        __u64 ids = bpf_get_current_pid_tgid();
        stamp(f, SEND_ENTER, &t->entered);
        if (t->tcp_send.at)
            stamp(f, TCP_SEND, &t->tcp_send);
        if (t->ip_send.at > t->tcp_send.at)
            stamp(f, IP_SEND, &t->ip_send);
        f->sender = ids >> 32;
        f->sender_tid = ids;
        if (asked_for(s))
            ask(c, f, SENDER);
    }
    stamp(f, QUEUE, &now);
    LEAVE(P_QUEUE);
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(on_qdisc_in, struct Qdisc *qdisc, struct netdev_queue *txq, struct sk_buff *skb)
{
    MAPS();
    struct frame *f = followed(head_of(c, s, skb));
    if (!f)
        return 0;
    STAMP();
    stamp(f, QDISC_IN, &now);
    LEAVE(P_QDISC_IN);
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(on_qdisc_out, struct Qdisc *qdisc, struct netdev_queue *txq, int packets, struct sk_buff *skb)
{
    if (!skb)
        return 0;
    MAPS();
    struct frame *f = followed(head_of(c, s, skb));
    if (!f || last(f) != QDISC_IN)
        return 0;
    STAMP();
    stamp(f, QDISC_OUT, &now);
    LEAVE(P_QDISC_OUT);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_xmit, struct sk_buff *skb, struct net_device *dev)
{
    MAPS();
    __u64 head = head_of(c, s, skb);
    struct frame *f = followed(head);
    c->sending = f ? head : 0;
    if (!f)
        return 0;
    STAMP();
    stamp(f, XMIT, &now);
    LEAVE(P_XMIT);
}

/* The driver has returned. The skb may be gone, so the head is the one remembered; and if the frame is already on
 * its receiver's side, this is not on its way. */
SEC("tp_btf/net_dev_xmit")
int BPF_PROG(on_xmit_done, struct sk_buff *skb, int rc, struct net_device *dev, unsigned int length)
{
    MAPS();
    struct frame *f = followed(c->sending);
    c->sending = 0;
    if (!f)
        return 0;
    STAMP();
    if (last(f) == XMIT) {
        stamp(f, XMIT_DONE, &now);
        if (s->direction == TX)
            hand_over(c, s, f, SENT);
    }
    LEAVE(P_XMIT_DONE);
}

static __always_inline void arrives(struct cpu *c, struct settings *s, struct sk_buff *skb, enum point point,
                                    const struct reading *now)
{
    __u64 head = head_of(c, s, skb);
    struct frame *f = followed(head);
    if (f && s->direction == TX) {
        /* The receiver's queue on this machine is where the driver's work ends. */
        stamp(f, point, now);
        hand_over(c, s, f, SENT);
        return;
    }
    /* A frame that is in a socket, or beyond, cannot arrive: its buffer has been given to another. */
    __u32 before = f ? last(f) : 0;
    if (before == TCP_RECEIVE || before == READY || before == COPY || before == COPIED)
        f = 0;
    if (!f && s->direction == TX)
        return;
    /* One that its driver has returned from may come by its NAPI, or be gone and its buffer another's. */
    if (!f || before == XMIT_DONE) {
        struct flow flow = {};
        if (read_flow(c, s, skb, number(c, skb->data), &flow))
            return;
        if (!f || f->flow.sequence != flow.sequence || f->flow.payload != flow.payload ||
            f->flow.source_port != flow.source_port || f->flow.destination_port != flow.destination_port)
            f = begin(c, s, head, &flow);
    }
    if (f)
        stamp(f, point, now);
}

SEC("tp_btf/netif_rx")
int BPF_PROG(on_netif_rx, struct sk_buff *skb)
{
    ENTER();
    arrives(c, s, skb, RX, &now);
    LEAVE(P_NETIF_RX);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(on_gro, struct sk_buff *skb)
{
    ENTER();
    arrives(c, s, skb, RX, &now);
    LEAVE(P_GRO);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_receive, struct sk_buff *skb)
{
    ENTER();
    arrives(c, s, skb, RECEIVE, &now);
    c->receiving = head_of(c, s, skb);
    LEAVE(P_RECEIVE);
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(on_tcp_receive, struct sock *sk, struct sk_buff *skb)
{
    MAPS();
    __u64 head = head_of(c, s, skb);
    struct frame *f = followed(head);
    c->receiving = f ? head : 0;
    if (!f || last(f) != RECEIVE)
        return 0;
    STAMP();
    stamp(f, TCP_RECEIVE, &now);
    LEAVE(P_TCP_RECEIVE);
}

/* Datagrams at a socket, of those that its reader has looked at before, too. */
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

SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_ready, struct sock *sk)
{
    MAPS();
    struct frame *f = followed(c->receiving);
    if (!f && sk->sk_protocol != UDP)
        return 0;
    STAMP();
    if (f && (last(f) == RECEIVE || last(f) == TCP_RECEIVE) && f->flow.destination_port == sk->__sk_common.skc_num)
        stamp(f, READY, &now);
    else
        f = 0;
    if (sk->sk_protocol == UDP)
        waits(c, sk, f ? f->head : 0);
    LEAVE(P_READY);
}

/* A receive call takes a frame. */
static __always_inline void taken(struct cpu *c, struct settings *s, struct thread *t, struct frame *f,
                                  enum point point, const struct reading *now)
{
    __u64 ids = bpf_get_current_pid_tgid();
    __u32 n = (f->count - 1) & (POINTS - 1), k = t->count;
    if (t->entered.at > f->at[n])
        stamp(f, RECV_ENTER, &t->entered);
    stamp(f, point, now);
    f->receiver = ids >> 32;
    f->receiver_tid = ids;
    if (asked_for(s))
        ask(c, f, RECEIVER);
    if (k < HEADS) {
        t->heads[k & (HEADS - 1)] = f->head;
        t->count = k + 1;
    } else {
        /* One call that empties a long queue: the return is not waited for. */
        c->crowded++;
        hand_over(c, s, f, FOLLOWED);
    }
}

/* The thread that runs, of which it is known that it receives: its call may have begun before the probes were there. */
static __always_inline struct thread *receiving(struct settings *s)
{
    __u32 tid = bpf_get_current_pid_tgid(), index = tid & (THREADS - 1);
    struct thread *t = bpf_map_lookup_elem(&threads, &index);
    if (t && (t->tid != tid || t->call != RECEIVES)) {
        t->tid = tid;
        t->call = RECEIVES;
        t->window = s->window;
        t->entered.at = t->tcp_send.at = t->ip_send.at = t->sk = 0;
        t->count = 0;
    }
    return t;
}

/* A receive call takes a frame, of which no more is looked at. */
static __always_inline void taken_at_once(struct cpu *c, struct settings *s, struct frame *f, enum point point,
                                          const struct reading *now)
{
    __u64 ids = bpf_get_current_pid_tgid();
    stamp(f, point, now);
    f->receiver = ids >> 32;
    f->receiver_tid = ids;
    if (asked_for(s))
        ask(c, f, RECEIVER);
    hand_over(c, s, f, FOLLOWED);
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(on_copy, struct sk_buff *skb, int length)
{
    MAPS();
    struct frame *f = followed(head_of(c, s, skb));
    if (!f)
        return 0;
    STAMP();
    struct sock *sk = skb->sk;
    __u32 before = last(f);
    /* Other sockets, of captures, may read the same buffer: only its own counts. */
    bool own = sk && f->flow.destination_port == sk->__sk_common.skc_num;
    bool at_socket = before == RECEIVE || before == TCP_RECEIVE || before == READY;
    if (own && at_socket && s->few)
        taken_at_once(c, s, f, COPY, &now);
    else if (own && at_socket) {
        struct thread *t = receiving(s);
        if (t)
            taken(c, s, t, f, COPY, &now);
    }
    LEAVE(P_COPY);
}

/* The frame that this thread copies. */
static __always_inline struct frame *copying(void)
{
    struct thread *t = this_thread();
    if (!t || t->call != RECEIVES || !t->count || t->count > HEADS)
        return 0;
    return followed(t->heads[(t->count - 1) & (HEADS - 1)]);
}

/* TCP comes by here after each buffer that it has copied … */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_copied, struct sock *sk)
{
    struct frame *f = copying();
    if (!f)
        return 0;
    ENTER();
    if (last(f) == COPY)
        stamp(f, COPIED, &now);
    LEAVE(P_COPIED);
}

/* … and UDP, which copies without telling, only here, at the end of the call: in the order in which frames came. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_recv_length, struct sock *sk, int ret, int flags)
{
    if (sk->sk_protocol != UDP) {
        struct frame *f = copying();
        if (!f)
            return 0;
        ENTER();
        if (last(f) == COPY)
            stamp(f, COPIED, &now);
        LEAVE(P_RECV_LENGTH);
    }
    ENTER();
    struct frame *f = ret >= 0 && !(flags & PEEK) ? followed(first_waiting(c, sk)) : 0;
    if (f && last(f) == READY && s->few)
        taken_at_once(c, s, f, COPIED, &now);
    else if (f && last(f) == READY) {
        struct thread *t = receiving(s);
        if (t)
            taken(c, s, t, f, COPIED, &now);
    }
    LEAVE(P_RECV_LENGTH);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
    ENTER();
    __u32 from = parent->tgid, to = child->tgid;
    if (from != to && bpf_map_lookup_elem(&family, &from))
        bpf_map_update_elem(&family, &to, &to, BPF_ANY);
    LEAVE(P_FORK);
}

/* A finer point, where the kernel lets functions be traced: TCP gives a packet to IP. */
SEC("fentry/__ip_queue_xmit")
int BPF_PROG(on_ip_send, struct sock *sk)
{
    ENTER();
    struct thread *t = this_thread();
    if (t && sends(s, t) && t->sk == number(c, sk))
        keep(&t->ip_send, &now);
    LEAVE(P_IP_SEND);
}

_Static_assert(sizeof(struct flow) == 56, "src/record.rs reads it");
_Static_assert(sizeof(struct cpu) == 8 * (3 * PROBES + 8), "src/kernel.rs reads it");
_Static_assert(sizeof(struct settings) == 48, "src/kernel.rs writes it");
_Static_assert(sizeof(struct frame) == 8 + 10 * POINTS + 56 + 32, "src/record.rs reads it");
_Static_assert(sizeof(struct counted_frame) == sizeof(struct frame) + 8 * POINTS * EVENTS, "src/record.rs reads it");
_Static_assert(sizeof(struct waiting) == 8 * WAITING + 24, "src/kernel.rs knows its size");
