//! Detects whether this process is inside a lab, and what the lab created there.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::assemble::interfaces;
use crate::record::{self, Record};
use crate::topology::{self, Node};

/// An interface that a lab created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabInterface {
    /// The addresses that the lab assigned.
    pub addresses: Vec<IpAddr>,
    /// The lab attached it to its switch.
    pub switched: bool,
}

/// What a lab created for this interface, if the calling thread's network namespace is a node of a lab and the
/// interface belongs to it.
#[must_use]
pub fn made_here(interface: &str) -> Option<LabInterface> {
    let id = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let here = id(Path::new("/proc/thread-self/ns/net"))?;
    let namespaces = record::namespaces().ok()?;
    let found = namespaces.iter().find(|name| id(&record::namespace_file(name)) == Some(here))?;
    let (lab, node) = topology::parse_namespace(found)?;
    let topology = Record::read(&lab).ok()??.topology;
    if !interfaces(&topology, node).iter().any(|own| own == interface) {
        return None;
    }
    let v4 = topology.ipv4(node).map(IpAddr::from);
    let v6 = topology.ipv6(node).map(IpAddr::from);
    Some(LabInterface { addresses: v4.into_iter().chain(v6).collect(), switched: node == Node::Switch })
}
