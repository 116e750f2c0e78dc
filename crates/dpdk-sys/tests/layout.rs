//! C and Rust agree on the layout of the structs that they exchange.

use dpdk_sys as sys;
use std::mem::{offset_of, size_of};

#[test]
fn structs_are_as_the_compiler_of_the_shim_sees_them() {
    // SAFETY: takes no arguments and returns a constant.
    let config = unsafe { sys::shim_sizeof_port_config() };
    // SAFETY: takes no arguments and returns a constant.
    let info = unsafe { sys::shim_sizeof_port_info() };
    // SAFETY: takes no arguments and returns a constant.
    let stats = unsafe { sys::shim_sizeof_port_stats() };
    // SAFETY: takes no arguments and returns a constant.
    let xstat = unsafe { sys::shim_sizeof_xstat() };
    // SAFETY: takes no arguments and returns a constant.
    let mac = unsafe { sys::shim_offset_info_mac() };
    // SAFETY: takes no arguments and returns a constant.
    let event = unsafe { sys::shim_sizeof_event_device() };
    assert_eq!(event as usize, size_of::<sys::shim_event_device>());
    assert_eq!(config as usize, size_of::<sys::shim_port_config>());
    assert_eq!(info as usize, size_of::<sys::shim_port_info>());
    assert_eq!(stats as usize, size_of::<sys::shim_port_stats>());
    assert_eq!(xstat as usize, size_of::<sys::shim_xstat>());
    assert_eq!(mac as usize, offset_of!(sys::shim_port_info, mac));
}

/// Every function of the header has a binding, and every binding has a function.
#[test]
fn header_and_bindings_name_the_same_functions() {
    let names = |text: &str, before: &dyn Fn(&str) -> bool| {
        let mut names: Vec<String> = text
            .match_indices("shim_")
            .filter_map(|(at, _)| {
                let name: String = text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let called = text[at + name.len()..].starts_with('(');
                (called && before(&text[..at])).then_some(name)
            })
            .collect();
        names.sort();
        names
    };
    let header = names(include_str!("../shim/shim.h"), &|_| true);
    let bindings = names(include_str!("../src/bindings.rs"), &|before| before.ends_with("fn "));
    assert!(header.len() > 30, "{header:?}");
    assert_eq!(header, bindings);
}
