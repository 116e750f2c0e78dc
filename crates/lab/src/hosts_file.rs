//! Host names in labs of sites: `ip netns exec` shows programs the files of `/etc/netns/NAMESPACE` instead of those in
//! `/etc`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::topology::{self, Topology};

/// Folder with a folder for each namespace.
const FOLDER: &str = "/etc/netns";

/// Writes the names of all sites for the programs of each node. Other labs have no names.
pub(crate) fn write(topology: &Topology) -> Result<()> {
    if !topology.has_sites() {
        return Ok(());
    }
    let text = text(topology);
    for node in topology.nodes() {
        let folder = Path::new(FOLDER).join(topology.namespace(node));
        let file = folder.join("hosts");
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&file, &text))
            .map_err(Error::io(format!("cannot write {}", file.display())))?;
    }
    Ok(())
}

fn text(topology: &Topology) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for node in topology.hosts() {
        let Some(site) = topology.site_of(node) else { continue };
        let v4 = topology.ipv4(node).map(|address| address.to_string());
        let v6 = topology.ipv6(node).map(|address| address.to_string());
        for address in v4.into_iter().chain(v6) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{address} {} {node}", site.host);
        }
    }
    text
}

/// Removes the names of a lab, whether it is up or was left behind.
pub(crate) fn remove(lab: &str) -> Result<()> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(format!("cannot read {FOLDER}"))(error)),
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().and_then(topology::parse_namespace).is_some_and(|(of, _)| of == lab);
        if ours {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(Error::io(format!("cannot remove {}", path.display())))?;
        }
    }
    // Ours if it is empty; a folder with other contents stays.
    let _not_empty = fs::remove_dir(FOLDER);
    Ok(())
}
