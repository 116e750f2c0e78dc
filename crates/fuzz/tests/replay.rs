//! Replays the corpora of the fuzz targets.

use fuzz::{Outcome, TARGETS, Target, corpus};
use std::path::Path;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_corpus_passes_and_reaches_behind_the_reader() {
    for target in TARGETS {
        let outcomes: Vec<Outcome> = corpus(target).iter().map(|(_, input)| (target.run)(input)).collect();
        assert!(!outcomes.is_empty(), "{} has no corpus", target.name);
        assert!(outcomes.iter().any(|outcome| *outcome != Outcome::Refused), "all of {} is refused", target.name);
    }
}

#[test]
fn every_target_has_a_program_of_its_name() {
    let manifest = std::fs::read_to_string(package().join("Cargo.toml")).expect("a manifest");
    for Target { name, .. } in TARGETS {
        let program = std::fs::read_to_string(package().join(format!("fuzz_targets/{name}.rs"))).expect("a program");
        assert!(program.contains(&format!("fuzz::run(\"{name}\"")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
    let programs = std::fs::read_dir(package().join("fuzz_targets")).expect("programs").count();
    assert_eq!(programs, TARGETS.len(), "a program without a target");
}

/// Tries inputs close to the corpus without a fuzzer, so that `cargo test` covers more than the corpus.
#[test]
fn inputs_near_the_corpus_pass() {
    // Marsaglia's xorshift: the same inputs each time.
    let mut state = 0x5eed_u64;
    let mut below = move |choices: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % choices.max(1) as u64) as usize
    };
    for target in TARGETS {
        for (_, input) in corpus(target) {
            for _ in 0..200 {
                let mut near = input.clone();
                for _ in 0..=below(3) {
                    let at = below(near.len());
                    match below(4) {
                        _ if near.is_empty() => near.push(below(256) as u8),
                        0 => near[at] ^= 1 << below(8),
                        1 => near.truncate(at),
                        2 => near.insert(at, below(256) as u8),
                        _ => near[at] = [0, 0xff, 0x7f, 0x80][below(4)],
                    }
                }
                let _ = (target.run)(&near);
            }
        }
    }
}

/// The corpus of `layers` was created with Scapy. It contains source routes and home addresses.
#[test]
fn checksums_of_the_corpus_are_right() {
    let target = TARGETS.iter().find(|target| target.name == "layers").expect("the target");
    for (name, input) in corpus(target) {
        let found = packet::layers::Layers::of(&input);
        for (of, layer) in found.all().iter().enumerate() {
            let right = packet::layers::checksum_is_right(&input, &found, of);
            assert_ne!(right, Some(false), "{} of {name:?}", layer.kind.name());
        }
    }
}
