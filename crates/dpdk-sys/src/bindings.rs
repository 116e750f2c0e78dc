// Matches shim/shim.h item by item, in the same order. tests/layout.rs compares the layouts.
#![allow(missing_docs, reason = "shim.h says what each item is")]
#![allow(non_camel_case_types, reason = "these are C's names")]

use std::ffi::{c_char, c_int};

#[repr(C)]
pub struct rte_mbuf {
    opaque: [u8; 0],
}

#[repr(C)]
pub struct rte_mempool {
    opaque: [u8; 0],
}

pub const SHIM_MBUF_BUF_ADDR: usize = 0;
pub const SHIM_MBUF_DATA_OFF: usize = 16;
pub const SHIM_MBUF_REFCNT: usize = 18;
pub const SHIM_MBUF_NB_SEGS: usize = 20;
pub const SHIM_MBUF_PORT: usize = 22;
pub const SHIM_MBUF_OL_FLAGS: usize = 24;
pub const SHIM_MBUF_PKT_LEN: usize = 36;
pub const SHIM_MBUF_DATA_LEN: usize = 40;
pub const SHIM_MBUF_USR: usize = 44;
pub const SHIM_MBUF_WAITED: usize = 48;
pub const SHIM_MBUF_BUF_LEN: usize = 54;
pub const SHIM_MBUF_STAGE_TIME: usize = 72;
pub const SHIM_HEADROOM: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct shim_port_config {
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub rx_descriptors: u16,
    pub tx_descriptors: u16,
    pub mtu: u16,
    pub launch_time: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct shim_port_info {
    pub driver: [c_char; 64],
    pub rx_offloads: u64,
    pub tx_offloads: u64,
    pub interface_index: u32,
    pub max_rx_packet: u32,
    pub speed_mbps: u32,
    pub max_rx_queues: u16,
    pub max_tx_queues: u16,
    pub min_mtu: u16,
    pub max_mtu: u16,
    pub mtu: u16,
    pub mac: [u8; 6],
    pub link_up: u8,
    pub send_on_timestamp: u8,
    pub reserved: [u8; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct shim_port_stats {
    pub ipackets: u64,
    pub opackets: u64,
    pub ibytes: u64,
    pub obytes: u64,
    pub imissed: u64,
    pub ierrors: u64,
    pub oerrors: u64,
    pub rx_nombuf: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct shim_xstat {
    pub name: [c_char; 64],
    pub value: u64,
}

pub const SHIM_EVENT_BURST: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct shim_event_device {
    pub service: i32,
    pub flows: u32,
    pub device: u8,
    pub reserved: [u8; 3],
}

unsafe extern "C" {
    pub fn shim_sizeof_port_config() -> u32;
    pub fn shim_sizeof_port_info() -> u32;
    pub fn shim_sizeof_port_stats() -> u32;
    pub fn shim_sizeof_xstat() -> u32;
    pub fn shim_offset_info_mac() -> u32;

    pub fn shim_log_capture(echo: c_int) -> c_int;
    pub fn shim_log_capture_xdp();
    pub fn shim_log_written() -> u64;
    pub fn shim_log_since(mark: u64, into: *mut c_char, room: u32) -> u32;
    pub fn shim_eal_init(argc: c_int, argv: *mut *mut c_char, silent: c_int) -> c_int;
    pub fn shim_version() -> *const c_char;
    pub fn shim_strerror(error: c_int) -> *const c_char;
    pub fn shim_has_huge_pages() -> c_int;
    pub fn shim_addresses_are_virtual() -> c_int;
    pub fn shim_thread_register() -> c_int;
    pub fn shim_thread_unregister();
    pub fn shim_tsc() -> u64;
    pub fn shim_tsc_hz() -> u64;

    pub fn shim_pool_create(
        name: *const c_char,
        frames: u32,
        cache: u32,
        data_room: u16,
        dense: c_int,
        error: *mut c_int,
    ) -> *mut rte_mempool;
    pub fn shim_pool_available(pool: *mut rte_mempool) -> u32;
    pub fn shim_pool_in_use(pool: *mut rte_mempool) -> u32;
    pub fn shim_alloc_bulk(pool: *mut rte_mempool, into: *mut *mut rte_mbuf, count: u32) -> c_int;
    pub fn shim_take_bulk(pool: *mut rte_mempool, into: *mut *mut rte_mbuf, count: u32, length: u16) -> c_int;
    pub fn shim_free_bulk(frames: *mut *mut rte_mbuf, count: u32);
    pub fn shim_copy(frame: *const rte_mbuf) -> *mut rte_mbuf;

    pub fn shim_launch_register(offset: *mut i32, flag: *mut u64) -> c_int;

    pub fn shim_attach(bus: *const c_char, name: *const c_char, arguments: *const c_char) -> c_int;
    pub fn shim_detach(bus: *const c_char, name: *const c_char) -> c_int;
    pub fn shim_port_count() -> u32;
    pub fn shim_port_find(name: *const c_char) -> c_int;
    pub fn shim_ring_port(name: *const c_char, slots: u32, queues: u16) -> c_int;
    pub fn shim_port_configure(port: u16, config: *mut shim_port_config, pool: *mut rte_mempool) -> c_int;
    pub fn shim_port_start(port: u16) -> c_int;
    pub fn shim_port_stop(port: u16) -> c_int;
    pub fn shim_port_close(port: u16) -> c_int;
    pub fn shim_port_info(port: u16, info: *mut shim_port_info) -> c_int;
    pub fn shim_port_clock(port: u16, ticks: *mut u64) -> c_int;
    pub fn shim_port_promiscuous(port: u16, on: c_int) -> c_int;
    pub fn shim_port_stats(port: u16, stats: *mut shim_port_stats) -> c_int;
    pub fn shim_port_xstats(port: u16, into: *mut shim_xstat, room: u32) -> c_int;

    pub fn shim_rx_burst(port: u16, queue: u16, into: *mut *mut rte_mbuf, room: u16) -> u16;
    pub fn shim_tx_burst(port: u16, queue: u16, frames: *mut *mut rte_mbuf, count: u16) -> u16;

    pub fn shim_sizeof_event_device() -> u32;
    pub fn shim_event_open(name: *const c_char, workers: u8, out: *mut shim_event_device) -> c_int;
    pub fn shim_event_close(device: u8) -> c_int;
    pub fn shim_event_schedule(service: i32) -> c_int;
    pub fn shim_event_feed(device: u8, frames: *mut *mut rte_mbuf, flows: *const u32, count: u16) -> u16;
    pub fn shim_event_take(device: u8, port: u8, frames: *mut *mut rte_mbuf, flows: *mut u32, room: u16) -> u16;
    pub fn shim_event_pass(device: u8, port: u8, frames: *mut *mut rte_mbuf, flows: *const u32, count: u16) -> u16;
    pub fn shim_event_flush(device: u8, port: u8);
}
