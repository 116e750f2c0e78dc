//! Tests that need live ports.

mod classes;
mod clock;
mod doctor;
mod emulate;
mod emulate_on;
mod examples;
mod floor;
mod host;
mod host_ports;
mod launch_time;
mod limit;
mod line;
mod neighbour;
mod ordinary_user;
mod orphans;
mod ports;
mod rights;
mod search;
mod sites;
mod slices;
mod stalled;
mod start_at;
mod stats;
mod streams;
mod switch;
mod xdp;
