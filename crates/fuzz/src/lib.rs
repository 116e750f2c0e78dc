//! Fuzz targets: one function for each reader of bytes that come from outside.
//!
//! [`TARGETS`] is the one list. `cargo fuzz` runs a target on inputs that it derives from coverage (`make fuzz`);
//! `cargo test` replays the corpora in `corpus/`, so that an input that once failed stays tested.
//!
//! A target fails by a panic. Beside the panics of the reader itself, it panics when an error has no remedy, or when
//! what was read prints as something that reads differently.

mod files;
mod frames;
mod network;
mod texts;

use std::hash::{DefaultHasher, Hash, Hasher};

/// What a reader made of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was refused with an error.
    Refused,
    /// It was read; a hash of its meaning.
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
    /// Its name: that of its program and of its corpus.
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
/// With the feature `planted` it panics on the first input that is read and is not in the corpus. That is the
/// planted bug that shows that the fuzzer reaches what lies behind the reader.
///
/// # Panics
/// When there is no such target, or it fails.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let outcome = (target.run)(input);
    if cfg!(feature = "planted")
        && let Outcome::Read(meaning) = outcome
    {
        assert!(seeds(target).contains(&meaning), "the planted bug of {name}");
    }
}

/// The meanings of what is in a target's corpus.
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

/// The inputs of a target's corpus, with their file names, in the order of the names.
///
/// # Panics
/// When the folder cannot be read.
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
