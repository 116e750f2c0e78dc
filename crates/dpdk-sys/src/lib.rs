//! The C door to DPDK: bindings of `shim/shim.h`, and of nothing else.
//!
//! The shim is compiled by `build.rs` against the DPDK that `pkg-config` finds (22.11 or later); its
//! header includes none of DPDK's, so that these bindings are the same for every version and need
//! no libclang. `tests/layout.rs` compares both sides' idea of the layout.
//!
//! Nothing here is safe to use by itself: that is `netlathe-dpdk`'s job.

mod bindings;

pub use bindings::*;

use std::sync::atomic::AtomicU16;

// What Rust reads in an mbuf without a call must lie where the shim's assertions say.
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
    /// Start of the buffer, headroom included.
    pub buf_addr: *mut u8,
    /// DPDK's own: the IO address, or `next` where DPDK was built without one.
    reserved_iova: u64,
    /// Bytes from `buf_addr` to the frame.
    pub data_off: u16,
    /// Owners; 1 for every frame that the safe binding lets be changed. Drivers count it down at any time.
    pub refcnt: AtomicU16,
    /// Segments of the chain.
    pub nb_segs: u16,
    /// The port that received it.
    pub port: u16,
    /// DPDK's offload flags.
    pub ol_flags: u64,
    reserved_packet_type: u32,
    /// Bytes of the whole chain.
    pub pkt_len: u32,
    /// Bytes in this segment.
    pub data_len: u16,
    reserved_vlan: u16,
    /// Whatever who owns the frame wants to keep with it.
    pub usr: u32,
    /// Nanoseconds that a received frame waited in its port.
    pub waited: u32,
    reserved_vlan_outer: u16,
    /// Bytes of the buffer, headroom included.
    pub buf_len: u16,
    reserved_pool: u64,
    /// DPDK's own: `next`, or nothing where DPDK keeps that in place of the IO address.
    reserved_next: u64,
    /// Picoseconds that the engine keeps with the frame while it is in stages. Drivers read it with offload flags only.
    pub stage_time: u64,
}
