//! From options to plans: what will run, on which ports, with which files.

pub(crate) mod detour;
pub(crate) mod files;
pub(crate) mod search;
