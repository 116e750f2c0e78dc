//! A safe binding to DPDK ports, pools and bursts, and to packet rings
