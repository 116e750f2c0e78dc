/* SPDX-FileCopyrightText: 2026 The netlathe authors
 * SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A receiver that takes little of the sender's CPU time: it stamps each frame in the driver and reads nothing of it. */
#include "../../../slice/bpf/kernel.h"
#include <bpf/bpf_helpers.h>

/* From linux/bpf.h, which includes headers of the machine's architecture. */
#define XDP_DROP 1

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The number of frames that arrived, then the time of each, in ns since the system started. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} stamps SEC(".maps");

SEC("xdp")
int stamp(void *frame)
{
    __u64 now = bpf_ktime_get_ns();
    __u32 first = 0;
    __u64 *count = bpf_map_lookup_elem(&stamps, &first);
    if (!count)
        return XDP_DROP;
    __u32 n = ++*count;
    __u64 *place = bpf_map_lookup_elem(&stamps, &n);
    if (place)
        *place = now;
    return XDP_DROP;
}
