/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel programs of netlathe slice. They stamp frames at the kernel's own tracepoints.
 *
 * A frame is identified by skb->head, which its clones share. TCP sends a clone and keeps the original. On loopback and
 * veth the receiver gets the same buffer that the sender wrote. Each traced frame has a slot in `frames`, chosen by a
 * hash of that address. The frame is handed over, with all its stamps, when the call that copied it to the application
 * returns, when its buffer is seen at the start of another journey, or when its slot is needed. */
#include "datagrams.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline struct thread *this_thread(void)
{
    __u32 tid = bpf_get_current_pid_tgid(), index = tid & (THREADS - 1);
    struct thread *t = bpf_map_lookup_elem(&threads, &index);
    return t && t->tid == tid ? t : 0;
}

/* Whether the thread is in a send call whose entry was seen in this window. */
static __always_inline bool sends(struct settings *s, struct thread *t)
{
    return t->call == SENDS && t->window == s->window;
}

/* Whether a thread sends on this subflow of MPTCP. MPTCP passes data to its subflows without TCP's tracepoint. A thread
 * that sends owns the lock of the subflow's socket. A softirq, which interrupts any thread, does not. */
static __always_inline bool mptcp_sends(struct cpu *c, struct sock *sk)
{
    struct tcp_sock *tp = (struct tcp_sock *)number(c, sk);
    bool subflow = 0;
    if (sk->sk_protocol != TCP || !bpf_core_field_exists(tp->is_mptcp))
        return 0;
    bpf_core_read(&subflow, sizeof(subflow), &tp->is_mptcp);
    return subflow && sk->sk_lock.owned;
}

/* Runs at every system call of the machine. While a thread is preempted inside this program, the program does not run
 * for other threads on that CPU. System calls that neither send nor receive therefore leave at once, uncounted. */
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
        /* Another frame may use its buffer by now. */
        if (!f || f->receiver_tid != t->tid)
            continue;
        if (!is_read(f)) {
            /* Another call will read the rest. If the end of the copy has no tracepoint, this is the nearest point. */
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

/* TCP takes data from the caller. This fires once for each buffer of a long write, and only the first one counts. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(on_tcp_send, struct sock *sk, struct msghdr *msg, struct sk_buff *skb, int goal)
{
    MAPS();
    __u32 tid = bpf_get_current_pid_tgid(), index = tid & (THREADS - 1);
    struct thread *t = bpf_map_lookup_elem(&threads, &index);
    if (!t)
        return 0;
    if (s->few && (t->tid != tid || t->window != s->window)) {
        /* The entry of the call was not seen, but a call that reaches this point sends. */
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
    /* A frame without a socket is on its way through a bridge or router. A frame that a driver has just taken is queued
     * by the lower device of a stacked one. Anything else is a new journey of the same buffer: a retransmission, or
     * another packet, perhaps one that does not match the filter. */
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
    /* A frame that leaves in a softirq does not belong to the call of the interrupted thread. */
    if (s->few) {
        /* Only TCP's stamp shows the call. It counts for the next packet. A datagram is sent by the running thread. */
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
    /* Another CPU may have dequeued it already. */
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
    /* A frame that was not queued, such as a piece of a long packet, reuses the buffer of another frame. */
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

/* The driver has returned. The skb may be freed, so use the head remembered at the start. Does not stamp a frame that
 * has already reached its receiver's side, or that the driver has not taken. */
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
    /* With few points, the stamp before is that of the queue. The length must be the same as there. */
    bool sent = before == XMIT || (s->few && before == QUEUE && f->flow.length == skb->len);
    /* With few points, a piece of a long packet is first seen here. The whole packet was queued on this CPU. */
    if (s->few && !sent && c->whole) {
        struct frame *piece = cut(c, s, skb, head, number(c, skb->data));
        if (piece) {
            f = piece;
            sent = 1;
        }
    }
    if (s->direction == TX) {
        /* Transmission ends at the receiver's queue on this machine. */
        if (sent) {
            stamp(f, point, now);
            hand_over(c, s, f, SENT);
        }
        return;
    }
    /* Otherwise the frame may pass this point again: its driver has returned and its NAPI delivers it, or a device on
     * top of this device receives it. Or another frame uses its buffer now. */
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

/* Adds a frame to those that the thread's receive call has taken, until the call returns. */
static __always_inline void remember(struct cpu *c, struct settings *s, struct thread *t, struct frame *f)
{
    __u32 k = t->count;
    if (k < HEADS) {
        t->heads[k & (HEADS - 1)] = f->head;
        t->count = k + 1;
        return;
    }
    /* A call that empties a long queue. Hand frames over without waiting for its return. Only the last frame that it
     * takes may be read incompletely. */
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

/* Stamps a frame when a receive call takes it, or takes its first part. */
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

/* The state of the running thread, which is known to be in a receive call. The call may have started before the probes
 * were attached. */
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

/* Stamps a frame when a receive call takes it, and hands it over without waiting for the return of the call. */
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

/* Counts `length` bytes of a frame that are being copied. TCP's socket shows the position of the reader. MPTCP has
 * other sequence numbers, so the bytes are summed. A datagram is always read whole. */
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
    /* Other sockets, such as those of captures, may read the same buffer, but only the frame's own socket counts. An
     * MPTCP subflow has its own ports, and its data is read from the MPTCP socket. */
    bool own = sk && (f->flow.destination_port == sk->__sk_common.skc_num || sk->sk_protocol == MPTCP);
    bool at_socket = before == RECEIVE || before == TCP_RECEIVE || before == READY;
    /* With few points, a COPY stamp that is not the last one marks the start of a part. */
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

/* The frame that this thread is copying. */
static __always_inline struct frame *copying(void)
{
    struct thread *t = this_thread();
    if (!t || t->call != RECEIVES || !t->count || t->count > HEADS)
        return 0;
    return followed(t->heads[(t->count - 1) & (HEADS - 1)]);
}

/* Stamps the end of a copy, of the whole frame or of its first part. */
static __always_inline void copied(struct frame *f, const struct reading *now)
{
    __u32 before = last(f);
    if (is_read(f) && (before == COPY || before == PART))
        stamp(f, COPIED, now);
    else if (before == COPY)
        stamp(f, PART, now);
}

/* TCP runs this after each copied buffer. */
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

/* Undoes the stamps of a call with MSG_PEEK, after which the data is still in the queue. */
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

/* The end of a receive call. UDP has no tracepoint at its copy, so its datagrams are stamped here, in order of
 * arrival. */
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
        bpf_map_delete_elem(&family, &to);  /* the ID belonged to a process that has ended */
    LEAVE(P_FORK);
}

/* An additional point, if the kernel supports tracing of functions: TCP passes a packet to IP. */
SEC("fentry/__ip_queue_xmit")
int BPF_PROG(on_ip_send, struct sock *sk)
{
    ENTER();
    struct thread *t = this_thread();
    if (t && sends(s, t) && t->sk == number(c, sk))
        keep(&t->ip_send, &now);
    LEAVE(P_IP_SEND);
}
