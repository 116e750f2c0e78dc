//! The C interface to DPDK: bindings of `shim/shim.h` and nothing else.
//!
//! `build.rs` compiles the shim against the DPDK that `pkg-config` finds (22.11 or later). The shim's header includes
//! no DPDK header, so these bindings are the same for every version and do not need libclang. `tests/layout.rs`
//! compares the layouts on both sides.
//!
//! Nothing here is safe to use directly. Use `netlathe-dpdk`.

mod bindings;

pub use bindings::*;

use std::sync::atomic::AtomicU16;

// Fields of an mbuf that Rust reads without a call must be at the offsets that the shim asserts.
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(MbufHead, buf_addr) == SHIM_MBUF_BUF_ADDR);
    assert!(offset_of!(MbufHead, data_off) == SHIM_MBUF_DATA_OFF);
    assert!(offset_of!(MbufHead, refcnt) == SHIM_MBUF_REFCNT);
    assert!(offset_of!(MbufHead, nb_segs) == SHIM_MBUF_NB_SEGS);
    assert!(offset_of!(MbufHead, port) == SHIM_MBUF_PORT);
    assert!(offset_of!(MbufHead, ol_flags) == SHIM_MBUF_OL_FLAGS);
    assert!(offset_of!(MbufHead, pkt_len) == SHIM_MBUF_PKT_LEN);
    assert!(offset_of!(MbufHead, data_len) == SHIM_MBUF_DATA_LEN);
    assert!(offset_of!(MbufHead, usr) == SHIM_MBUF_USR);
    assert!(offset_of!(MbufHead, waited) == SHIM_MBUF_WAITED);
    assert!(offset_of!(MbufHead, buf_len) == SHIM_MBUF_BUF_LEN);
    assert!(offset_of!(MbufHead, stage_time) == SHIM_MBUF_STAGE_TIME);
};

/// The first bytes of `struct rte_mbuf`, which is otherwise opaque.
#[repr(C)]
#[derive(Debug)]
pub struct MbufHead {
    /// The start of the buffer, including headroom.
    pub buf_addr: *mut u8,
    /// Reserved for DPDK: the IO address, or `next` if DPDK was built without IO addresses.
    reserved_iova: u64,
    /// Bytes from `buf_addr` to the frame.
    pub data_off: u16,
    /// The reference count: 1 for every frame that the safe binding allows to change. Drivers may decrement it at any
    /// time.
    pub refcnt: AtomicU16,
    /// The number of segments in the chain.
    pub nb_segs: u16,
    /// The port that received the frame.
    pub port: u16,
    /// DPDK's offload flags.
    pub ol_flags: u64,
    reserved_packet_type: u32,
    /// Bytes in the whole chain.
    pub pkt_len: u32,
    /// Bytes in this segment.
    pub data_len: u16,
    reserved_vlan: u16,
    /// Free for the frame's owner to use.
    pub usr: u32,
    /// Nanoseconds that a received frame waited in its port.
    pub waited: u32,
    reserved_vlan_outer: u16,
    /// The buffer size in bytes, including headroom.
    pub buf_len: u16,
    reserved_pool: u64,
    /// Reserved for DPDK: `next`, or unused if DPDK stores `next` in place of the IO address.
    reserved_next: u64,
    /// Picoseconds that the engine stores with a frame in its stages. Drivers read this field only with offload flags
    /// set.
    pub stage_time: u64,
}
