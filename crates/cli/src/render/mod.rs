//! Output for people and programs: text, pages, help, progress, and the files they go to.

pub(crate) mod gaps;
pub(crate) mod help;
pub(crate) mod output_file;
pub(crate) mod page_folder;
pub(crate) mod progress;
pub(crate) mod report_printer;
pub(crate) mod report_text;
pub(crate) mod results;
pub(crate) mod search;
pub(crate) mod search_results;
#[cfg(feature = "slice")]
pub(crate) mod slices;
pub(crate) mod sweep_text;
