/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel's part of netlathe slice: stamps of a frame at the points that the kernel's own tracepoints mark.
 *
 * A frame is known by skb->head, which its clones share: TCP sends a clone and keeps the original, and on loopback
 * and veth the receiver gets the very buffer that the sender wrote. Each frame that is followed has a place in
 * `frames`, chosen by a hash of that address. It is handed over, whole, when the call that copied it to the
 * application returns; when its buffer is seen at the start of another journey; or when its place is needed. */
#include "datagrams.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

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

/* MPTCP gives data to its subflows without a tracepoint of TCP's send function. A thread that sends holds the lock of
 * the subflow's socket; a softirq, which sends on top of whatever runs, does not. */
static __always_inline bool mptcp_sends(struct cpu *c, struct sock *sk)
{
    struct tcp_sock *tp = (struct tcp_sock *)number(c, sk);
    bool subflow = 0;
    if (sk->sk_protocol != TCP || !bpf_core_field_exists(tp->is_mptcp))
        return 0;
    bpf_core_read(&subflow, sizeof(subflow), &tp->is_mptcp);
    return subflow && sk->sk_lock.owned;
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
        /* Its buffer may be another's by now. */
        if (!f || f->receiver_tid != t->tid)
            continue;
        if (!is_read(f)) {
            /* The rest is read by another call. Where the end of the copy has no tracepoint, this is near it. */
            if (last(f) == COPY)
                stamp(f, PART, &now);
        } else if (last(f) == COPY || last(f) == COPIED) {
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
        /* Its call was not seen: it must be one that sends, since it reached this point. */
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
    if (!f && !sk && c->held)
        f = held_again(c, s, name);
    __u32 before = f ? last(f) : 0;
    if (!s->few)
        c->whole = 0;
    /* Without a socket it is on its way through a bridge or router; right after a driver took it, a device within
     * a device queues it. Anything else is a new journey of the same buffer: a retransmission, or of another packet,
     * even one that was not requested. */
    if (f && (before == XMIT || (!sk && before == RECEIVE))) {
        queue(c, s, f, skb, &now);
        LEAVE(P_QUEUE);
    }
    if (f)
        hand_over(c, s, f, REUSED);
    if (!sk || s->direction == RX_ONLY)
        LEAVE(P_QUEUE);
    struct flow flow = {};
    f = read_flow(c, s, skb, head + skb->network_header, &flow) ? 0 : begin(c, s, name, &flow, now.at);
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
        if (called || f->flow.protocol == UDP || mptcp_sends(c, sk)) {
            f->sender = ids >> 32;
            f->sender_tid = ids;
            if (asked_for(s))
                ask(c, f, SENDER);
        }
    } else if (t && sends(s, t) && (f->flow.protocol == UDP || t->sk == number(c, sk) || mptcp_sends(c, sk))) {
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
    queue(c, s, f, skb, &now);
    LEAVE(P_QUEUE);
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(on_qdisc_in, struct Qdisc *qdisc, struct netdev_queue *txq, struct sk_buff *skb)
{
    MAPS();
    struct frame *f = followed(head_of(c, s, skb));
    /* Another CPU may have taken it out by now. */
    if (!f || last(f) != QUEUE)
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
    if (!f || last(f) != QDISC_IN || !is_queued(f, skb))
        return 0;
    STAMP();
    stamp(f, QDISC_OUT, &now);
    c->whole = f->head;
    LEAVE(P_QDISC_OUT);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_xmit, struct sk_buff *skb, struct net_device *dev)
{
    MAPS();
    __u64 head = head_of(c, s, skb);
    struct frame *f = followed(head);
    /* What comes without a queue, such as a piece of a long packet, has a buffer that another had. */
    if (f && !is_queued(f, skb)) {
        hand_over(c, s, f, REUSED);
        f = 0;
    }
    bool piece = !f && c->whole;
    if (piece)
        f = cut(c, s, skb, head, number(c, skb->head) + skb->network_header);
    c->sending = f ? head : 0;
    if (!f)
        return 0;
    STAMP();
    stamp(f, XMIT, &now);
    if (piece)
        LEAVE_UNTIMED(P_XMIT);
    LEAVE(P_XMIT);
}

/* The driver has returned. The skb may be gone, so the head is the one remembered; and if the frame is already on
 * its receiver's side, or the driver has not taken it, this is not on its way. */
SEC("tp_btf/net_dev_xmit")
int BPF_PROG(on_xmit_done, struct sk_buff *skb, int rc, struct net_device *dev, unsigned int length)
{
    MAPS();
    struct frame *f = followed(c->sending);
    c->sending = 0;
    if (!f)
        return 0;
    STAMP();
    if (last(f) == XMIT && !rc) {
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
    if (point == RECEIVE && c->held) {
        if (!f)
            f = held_again(c, s, head);
        if (c->held)
            let_go(c, s);
    }
    __u32 before = f ? last(f) : 0;
    /* With few points it comes from the queue, as long as it was there. */
    bool sent = before == XMIT || (s->few && before == QUEUE && f->flow.length == skb->len);
    /* Nor is a piece of a long packet seen before. Its whole was queued on this CPU. */
    if (s->few && !sent && c->whole) {
        struct frame *piece = cut(c, s, skb, head, number(c, skb->data));
        if (piece) {
            f = piece;
            sent = 1;
        }
    }
    if (s->direction == TX) {
        /* The receiver's queue on this machine is where the driver's work ends. */
        if (sent) {
            stamp(f, point, now);
            hand_over(c, s, f, SENT);
        }
        return;
    }
    /* Elsewhere on its way, it may be a frame that comes by again: one that its driver has returned from, by its NAPI;
     * through a device upon the device. Or its buffer has been given to another. */
    if (!sent && !(before == RX && point == RECEIVE)) {
        bool at_socket = before == TCP_RECEIVE || before == READY || before == COPY || before == COPIED;
        struct flow flow = {};
        bool other = read_flow(c, s, skb, number(c, skb->data), &flow);
        if (f && (other || at_socket || !same(&f->flow, &flow))) {
            hand_over(c, s, f, REUSED);
            f = 0;
        }
        if (other)
            return;
        if (!f)
            f = begin(c, s, head, &flow, now->at);
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
    struct frame *f = followed(c->receiving);
    if (f && f->flow.segment && last(f) == RECEIVE)
        hold(c, s, f);
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
    bool piece = 0;
    if (sk->sk_protocol == UDP && c->held && (f = held_piece(c, s, sk))) {
        piece = 1;
        stamp(f, READY, &now);
    }
    if (sk->sk_protocol == UDP)
        waits(c, sk, f ? f->head : 0);
    if (piece)
        LEAVE_UNTIMED(P_READY);
    LEAVE(P_READY);
}

/* The thread of a receive call remembers the frame until it returns. */
static __always_inline void remember(struct cpu *c, struct settings *s, struct thread *t, struct frame *f)
{
    __u32 k = t->count;
    if (k < HEADS) {
        t->heads[k & (HEADS - 1)] = f->head;
        t->count = k + 1;
        return;
    }
    /* One call that empties a long queue: the return is not waited for. Only the last that it takes may have a rest. */
    c->crowded++;
    if (is_read(f)) {
        hand_over(c, s, f, FOLLOWED);
        return;
    }
    struct frame *g = followed(t->heads[HEADS - 1]);
    if (g && g->receiver_tid == t->tid && is_read(g))
        hand_over(c, s, g, FOLLOWED);
    t->heads[HEADS - 1] = f->head;
}

/* A receive call takes a frame, or the first part of it. */
static __always_inline void taken(struct cpu *c, struct settings *s, struct thread *t, struct frame *f,
                                  enum point point, const struct reading *now)
{
    __u64 ids = bpf_get_current_pid_tgid();
    __u32 n = (f->count - 1) & (POINTS - 1);
    if (t->entered.at > f->at[n])
        stamp(f, RECV_ENTER, &t->entered);
    stamp(f, point, now);
    f->receiver = ids >> 32;
    f->receiver_tid = ids;
    if (asked_for(s))
        ask(c, f, RECEIVER);
    remember(c, s, t, f);
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

/* `length` bytes of a frame are being copied. TCP says up to where it has read; of MPTCP, whose numbers are others, the
 * bytes are added up. A datagram is read at once. */
static __always_inline void copies(struct cpu *c, struct sock *sk, struct frame *f, __u32 length)
{
    f->parts++;
    f->before = f->copied;
    f->copied += length;
    if (f->flow.protocol == UDP) {
        f->copied = f->flow.payload;
    } else if (sk->sk_protocol == TCP) {
        struct tcp_sock *tp = (struct tcp_sock *)number(c, sk);
        __u32 read = 0;
        if (!bpf_core_read(&read, sizeof(read), &tp->copied_seq))
            f->copied = read + length - f->flow.sequence;
    }
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
    /* Other sockets, of captures, may read the same buffer: only its own counts. A subflow of MPTCP has ports of its own,
     * and its data is read from the socket to which it belongs. */
    bool own = sk && (f->flow.destination_port == sk->__sk_common.skc_num || sk->sk_protocol == MPTCP);
    bool at_socket = before == RECEIVE || before == TCP_RECEIVE || before == READY;
    /* With few points, a copy that is not the last is the beginning of a part. */
    bool rest = s->few ? before == COPY : before == PART;
    if (!own || !(at_socket || rest))
        LEAVE(P_COPY);
    copies(c, sk, f, length);
    if (s->few) {
        if (is_read(f))
            taken_at_once(c, s, f, COPY, &now);
        else if (at_socket)
            stamp(f, COPY, &now);
        LEAVE(P_COPY);
    }
    struct thread *t = receiving(s);
    if (!t)
        LEAVE(P_COPY);
    if (at_socket) {
        taken(c, s, t, f, COPY, &now);
    } else {
        f->receiver_tid = t->tid;
        remember(c, s, t, f);
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

/* A copy is at its end: that of all of the frame, or of its first part. */
static __always_inline void copied(struct frame *f, const struct reading *now)
{
    __u32 before = last(f);
    if (is_read(f) && (before == COPY || before == PART))
        stamp(f, COPIED, now);
    else if (before == COPY)
        stamp(f, PART, now);
}

/* TCP comes by here after each buffer that it has copied … */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_copied, struct sock *sk)
{
    struct frame *f = copying();
    if (!f)
        return 0;
    ENTER();
    copied(f, &now);
    LEAVE(P_COPIED);
}

/* The call only looked at what it copied, which is there as before. */
static __always_inline void peeked(struct thread *t)
{
    for (__u32 i = 0; i < HEADS; i++) {
        if (i >= t->count)
            break;
        struct frame *f = followed(t->heads[i]);
        if (!f || f->receiver_tid != t->tid || !f->parts)
            continue;
        f->parts--;
        f->copied = f->before;
        for (__u32 n = 0; n < 3; n++) {
            __u32 point = last(f);
            if (point == COPIED || (!f->parts && (point == PART || point == COPY || point == RECV_ENTER)))
                f->count--;
        }
    }
    t->count = 0;
}

/* … and UDP, which copies without telling, only here, at the end of the call: in the order in which frames came. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_recv_length, struct sock *sk, int ret, int flags)
{
    if (flags & PEEK) {
        struct thread *t = this_thread();
        if (t && t->call == RECEIVES)
            peeked(t);
        return 0;
    }
    if (sk->sk_protocol != UDP) {
        struct frame *f = copying();
        if (!f)
            return 0;
        ENTER();
        copied(f, &now);
        LEAVE(P_RECV_LENGTH);
    }
    ENTER();
    struct frame *f = ret >= 0 && !(flags & ERRQUEUE) ? followed(first_waiting(c, sk)) : 0;
    if (f && last(f) == READY)
        copies(c, sk, f, ret);
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
    else if (from != to && bpf_map_lookup_elem(&family, &to))
        bpf_map_delete_elem(&family, &to);  /* the number was one's that has ended */
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
