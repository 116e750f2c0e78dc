//! The C door to DPDK
