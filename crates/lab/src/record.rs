//! The record of a lab: what was built, when, and which process it belongs to.
//!
//! It is written *before* the first namespace is made, by creating a file that must not exist: that is what keeps two
//! processes from building the same lab, and what lets a later `down` find a lab whose builder was killed half-way.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::list::State;
use crate::topology::{self, Topology};

/// Where records are. Namespaces are in /run too and vanish with it at a reboot, so neither outlives the other.
const FOLDER: &str = "/run/netlathe/labs";
/// Where `ip netns` keeps its namespaces.
const NAMESPACES: &str = "/run/netns";

/// A process that a lab belongs to. The start time tells it from a later process with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    start_ticks: u64,
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Result<Owner> {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid).ok_or_else(|| {
            Error::io("cannot read /proc/self/stat; is /proc mounted?")(io::Error::from(io::ErrorKind::NotFound))
        })?;
        Ok(Owner { pid, start_ticks })
    }

    fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// When a process started, in clock ticks since boot; none if it does not exist or is only waiting to be reaped.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may itself hold spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// What is kept about a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) topology: Topology,
    /// Seconds since 1970.
    since: u64,
    /// The process whose end should be the lab's end; none for a lab that is to stay.
    pub(crate) owner: Option<Owner>,
    /// Whether building got to its end.
    pub(crate) complete: bool,
}

impl Record {
    /// Claims the name: fails if there is a record of it or a namespace.
    pub(crate) fn claim(topology: &Topology, owner: Option<Owner>) -> Result<Record> {
        fs::create_dir_all(FOLDER).map_err(Error::io(format!("cannot make {FOLDER}")))?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let record = Record { topology: topology.clone(), since, owner, complete: false };
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

    /// How the lab is, by what is kept about it.
    pub(crate) fn state(&self) -> State {
        match &self.owner {
            Some(owner) if !owner.is_alive() => State::LeftBehind { pid: owner.pid },
            _ if !self.complete => State::Incomplete,
            Some(owner) => State::Held { pid: owner.pid },
            None => State::Up,
        }
    }

    /// Why a lab with this record cannot be built anew.
    fn conflict(&self) -> Error {
        self.usable().err().unwrap_or_else(|| Error::Exists(self.topology.name.clone()))
    }

    /// Whether programs can be run in the lab; says why not.
    pub(crate) fn usable(&self) -> Result<()> {
        let name = self.topology.name.clone();
        match self.state() {
            State::Up | State::Held { .. } => Ok(()),
            State::LeftBehind { pid } => Err(Error::LeftBehind { name, pid }),
            State::Incomplete => Err(Error::Incomplete(name)),
            State::Unrecorded => Err(Error::Unrecorded(name)),
        }
    }

    /// Notes that building got to its end.
    pub(crate) fn completed(&mut self) -> Result<()> {
        self.complete = true;
        let path = path(&self.topology.name);
        // Renamed into place, so that a reader never sees half a record.
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

    /// Removes the record; says whether there was one.
    pub(crate) fn remove(name: &str) -> Result<bool> {
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

/// The names that have a record.
pub(crate) fn recorded() -> Result<Vec<String>> {
    let names = names_in(FOLDER)?.into_iter().filter_map(|file| file.strip_suffix(".json").map(str::to_owned));
    Ok(names.filter(|name| topology::check_name(name).is_ok()).collect())
}

/// The namespaces of all labs as `ip netns` has them: found by name, whether or not there is a record.
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

/// The sorted names in a folder; none if there is no folder.
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
    fn a_live_owner_is_told_from_a_dead_one_and_from_its_number_used_again() {
        let this = Owner::this().expect("we are running");
        assert!(this.is_alive());
        assert!(!Owner { start_ticks: this.start_ticks + 1, ..this }.is_alive());
        // Beyond the kernel's largest process number.
        assert!(!Owner { pid: 1 << 30, start_ticks: 0 }.is_alive());
    }
}
