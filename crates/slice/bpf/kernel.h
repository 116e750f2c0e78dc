/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The parts of the kernel's structures that the probes read. The loader takes the offset of each field from
 * /sys/kernel/btf/vmlinux of the running kernel (CO-RE). The order and the sizes here have no meaning. */
#ifndef NETLATHE_KERNEL_H
#define NETLATHE_KERNEL_H

typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef _Bool bool;

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERF_EVENT_ARRAY 4
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_AVAIL_DATA 0
#define BPF_RB_RING_SIZE 1
#define BPF_ANY 0

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
    __be16 skc_dport;
    __u16 skc_num;
};

struct sk_buff_head {
    __u32 qlen;
};

typedef struct {
    int owned;
} socket_lock_t;

struct sock {
    struct sock_common __sk_common;
    socket_lock_t sk_lock;
    struct sk_buff_head sk_receive_queue;
    __u16 sk_protocol;
};

/* A subflow of MPTCP is a TCP socket that belongs to the program's socket. */
struct tcp_sock {
    __u32 copied_seq;                       /* sequence number up to which the program has read */
    bool is_mptcp;
};

/* reader_queue: datagrams that the reader has moved from sk_receive_queue but not received yet. */
struct udp_sock {
    unsigned long udp_flags;
    struct sk_buff_head reader_queue;
};

struct sk_buff {
    struct sock *sk;
    unsigned int len;
    __be16 protocol;
    __u16 transport_header;
    __u16 network_header;
    unsigned int end;
    unsigned char *head;
    unsigned char *data;
};

/* Follows the buffer. A datagram that is longer than gso_size is still to be split into several. */
struct skb_shared_info {
    unsigned short gso_size;
    unsigned int gso_type;
};

struct task_struct {
    int tgid;
};

#pragma clang attribute pop

/* The result of bpf_perf_event_read_value. */
struct bpf_perf_event_value {
    __u64 counter, enabled, running;
};

struct msghdr;
struct net_device;
struct netdev_queue;
struct pt_regs;
struct Qdisc;

#endif
