//! The record of a lab: what was built, when, and its owning process.
//!
//! The record is written *before* the first namespace is created, as a file that must not exist. This prevents two
//! processes from building the same lab, and lets a later `down` find a lab whose builder was killed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::list::{Forwarder, State};
use crate::topology::{self, Topology};

/// Folder of the records. Like the namespaces it is in /run and disappears at a reboot, so neither outlives the other.
const FOLDER: &str = "/run/netlathe/labs";
/// Folder where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// The process that a lab belongs to. The start time distinguishes it from a later process with the same PID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    start_ticks: u64,
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Result<Owner> {
        Owner::of(std::process::id()).ok_or_else(|| {
            Error::io("cannot read /proc/self/stat; is /proc mounted?")(io::Error::from(io::ErrorKind::NotFound))
        })
    }

    /// Another process, if it runs.
    pub(crate) fn of(pid: u32) -> Option<Owner> {
        Some(Owner { pid, start_ticks: start_ticks(pid)? })
    }

    fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// Start time of a process in clock ticks since boot; `None` if it does not exist or is a zombie.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name in parentheses may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// The stored data of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) topology: Topology,
    /// Creation time in seconds since 1970.
    since: u64,
    /// The process whose end ends the lab. `None` for a lab that stays.
    pub(crate) owner: Option<Owner>,
    /// Whether the build was completed.
    pub(crate) complete: bool,
    /// The process that forwards frames between sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forwarder: Option<Owner>,
}

impl Record {
    /// Claims the name. Fails if a record or a namespace of it exists.
    pub(crate) fn claim(topology: &Topology, owner: Option<Owner>) -> Result<Record> {
        fs::create_dir_all(FOLDER).map_err(Error::io(format!("cannot make {FOLDER}")))?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let record = Record { topology: topology.clone(), since, owner, complete: false, forwarder: None };
        let path = path(&topology.name);
        let mut file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(
                    Record::read(&topology.name)?.map_or(Error::Exists(topology.name.clone()), |r| r.conflict())
                );
            }
            Err(error) => return Err(Error::io(format!("cannot write {}", path.display()))(error)),
        };
        file.write_all(&record.to_json()).map_err(Error::io(format!("cannot write {}", path.display())))?;
        if !namespaces_of(&topology.name)?.is_empty() {
            Record::remove(&topology.name)?;
            return Err(Error::Unrecorded(topology.name.clone()));
        }
        Ok(record)
    }

    /// State of the lab according to the record.
    pub(crate) fn state(&self) -> State {
        match &self.owner {
            Some(owner) if !owner.is_alive() => State::LeftBehind { pid: owner.pid },
            _ if !self.complete => State::Incomplete,
            Some(owner) => State::Held { pid: owner.pid },
            None => State::Up,
        }
    }

    /// Why a lab with this record cannot be built again.
    fn conflict(&self) -> Error {
        self.usable().err().unwrap_or_else(|| Error::Exists(self.topology.name.clone()))
    }

    /// Checks that programs can be run in the lab.
    pub(crate) fn usable(&self) -> Result<()> {
        let name = self.topology.name.clone();
        match self.state() {
            State::Up | State::Held { .. } => Ok(()),
            State::LeftBehind { pid } => Err(Error::LeftBehind { name, pid }),
            State::Incomplete => Err(Error::Incomplete(name)),
            State::Unrecorded => Err(Error::Unrecorded(name)),
        }
    }

    /// Records that the build was completed.
    pub(crate) fn completed(&mut self) -> Result<()> {
        self.complete = true;
        self.write()
    }

    /// The process that forwards between sites, if one was started.
    pub(crate) fn forwarder(&self) -> Option<Forwarder> {
        self.forwarder.as_ref().map(|owner| Forwarder { pid: owner.pid, running: owner.is_alive() })
    }

    pub(crate) fn write(&self) -> Result<()> {
        let path = path(&self.topology.name);
        // Renamed into place, so that a reader never sees a partial record.
        let draft = path.with_extension("draft");
        fs::write(&draft, self.to_json())
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(Error::io(format!("cannot write {}", path.display())))
    }

    /// The record of that name, if there is one.
    pub(crate) fn read(name: &str) -> Result<Option<Record>> {
        let path = path(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format!("cannot read {}", path.display()))(error)),
        };
        let bad = |detail: String| Error::Record { path: path.clone(), detail, name: name.to_owned() };
        let record: Record = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        if record.topology.name != name {
            return Err(bad(format!("it is about lab `{}`", record.topology.name)));
        }
        Ok(Some(record))
    }

    /// Removes the record. Returns whether it existed.
    pub(crate) fn remove(name: &str) -> Result<bool> {
        let counters = counters_path(name);
        match fs::remove_file(&counters) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format!("cannot remove {}", counters.display()))(error));
            }
            _ => {}
        }
        let path = path(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io(format!("cannot remove {}", path.display()))(error)),
        }
    }

    pub(crate) fn since(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.since)
    }

    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a record has string keys and no failing serializer")
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.json"))
}

/// The file for the counters of a lab's forwarder. Lab names contain no dot, so the file cannot be taken for a record.
pub(crate) fn counters_path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.counters.json"))
}

/// The names of labs with a record.
pub(crate) fn recorded() -> Result<Vec<String>> {
    let names = names_in(FOLDER)?.into_iter().filter_map(|file| file.strip_suffix(".json").map(str::to_owned));
    Ok(names.filter(|name| topology::check_name(name).is_ok()).collect())
}

/// The namespaces of all labs in `ip netns`, found by name, with or without a record.
pub(crate) fn namespaces() -> Result<Vec<String>> {
    let mut names = names_in(NAMESPACES)?;
    names.retain(|name| topology::parse_namespace(name).is_some());
    Ok(names)
}

/// The namespaces of one lab.
pub(crate) fn namespaces_of(lab: &str) -> Result<Vec<String>> {
    let mut names = namespaces()?;
    names.retain(|name| topology::parse_namespace(name).is_some_and(|(of, _)| of == lab));
    Ok(names)
}

/// The file of a namespace.
pub(crate) fn namespace_file(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// The sorted names in a folder; empty if it does not exist.
fn names_in(folder: &str) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("cannot read {folder}"))(error)),
    };
    let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_a_live_owner_from_a_dead_one_and_a_reused_pid() {
        let this = Owner::this().expect("we are running");
        assert!(this.is_alive());
        assert!(!Owner { start_ticks: this.start_ticks + 1, ..this }.is_alive());
        // Above the kernel's largest PID.
        assert!(!Owner { pid: 1 << 30, start_ticks: 0 }.is_alive());
    }
}
