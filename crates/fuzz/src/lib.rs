//! Fuzz targets: one function for each reader of external bytes.
//!
//! [`TARGETS`] lists all of them. `cargo fuzz` runs a target on inputs derived from coverage (`make fuzz`). `cargo
//! test` replays the corpora in `corpus/`, so that an input that failed once is tested again.
//!
//! A target fails with a panic. In addition to panics of the reader itself, it panics when an error has no remedy, or
//! when the printed form of a value is parsed to another value.

mod files;
mod frames;
mod network;
mod texts;

use std::hash::{DefaultHasher, Hash, Hasher};

/// The result of reading an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The input was rejected with an error.
    Refused,
    /// The input was read; a hash of its meaning.
    Read(u64),
}

impl Outcome {
    fn of<T: Hash>(meaning: &T) -> Self {
        let mut hasher = DefaultHasher::new();
        meaning.hash(&mut hasher);
        Outcome::Read(hasher.finish())
    }
}

/// A reader under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also the name of its program and of its corpus.
    pub name: &'static str,
    /// Runs the reader on one input.
    pub run: fn(&[u8]) -> Outcome,
}

macro_rules! targets {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// Every target.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $module::$name }),*];
    };
}

targets! {
    texts::gap,
    texts::wave,
    texts::stage,
    texts::stream,
    texts::rule,
    texts::sync,
    texts::port,
    texts::rewrite,
    texts::expectation,
    texts::disk,
    texts::scenario,
    texts::timeline,
    texts::overrides,
    texts::stack,
    files::table,
    files::trace,
    files::decision,
    files::capture,
    files::journal,
    files::ring,
    frames::frame,
    frames::layers,
    frames::record,
    network::json_scenario,
    network::otg_config,
    network::grpc,
    network::clock,
    network::merge,
}

/// Runs one input through the target of this name.
///
/// With the feature `planted`, panics on the first input that is read and is not in the corpus. This planted bug shows
/// that the fuzzer gets past the reader.
///
/// # Panics
/// If there is no such target, or if the target fails.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let outcome = (target.run)(input);
    if cfg!(feature = "planted")
        && let Outcome::Read(meaning) = outcome
    {
        assert!(seeds(target).contains(&meaning), "the planted bug of {name}");
    }
}

/// Hashes of the meanings of the inputs in a target's corpus.
fn seeds(target: &Target) -> &'static std::collections::HashSet<u64> {
    static SEEDS: std::sync::OnceLock<std::collections::HashSet<u64>> = std::sync::OnceLock::new();
    SEEDS.get_or_init(|| {
        let inputs = corpus(target).into_iter();
        inputs
            .filter_map(|(_, input)| match (target.run)(&input) {
                Outcome::Read(meaning) => Some(meaning),
                Outcome::Refused => None,
            })
            .collect()
    })
}

/// The inputs of a target's corpus with their file names, sorted by name.
///
/// # Panics
/// If the folder cannot be read.
#[must_use]
pub fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).expect("a file"))
        })
        .collect();
    inputs.sort();
    inputs
}
