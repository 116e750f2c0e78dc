//! Every shipped scenario is valid, runs from any folder, and shows what it claims.

use crate::common::Bench;
use std::path::{Path, PathBuf};

fn scenarios() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(folder).expect("there is a folder of scenarios");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

/// Scenarios with live ports need the lab. All others run anywhere.
fn is_live(printed: &str) -> bool {
    let kinds = ["if:", "tap:", "pci:", "dpdk:"];
    printed.contains("[lab]") || kinds.iter().any(|kind| printed.contains(&format!("= \"{kind}")))
}

#[test]
fn every_scenario_is_checked_and_the_virtual_ones_are_run() {
    let bench = Bench::new();
    let mut run = 0;
    for path in scenarios() {
        let checked = bench.run(["check".as_ref(), path.as_os_str()]);
        assert!(checked.status == Some(0) && checked.complaints().is_empty(), "{}: {}", path.display(), checked.stderr);
        assert!(checked.stdout.contains("[[expect]]"), "{} expects nothing", path.display());
        if is_live(&checked.stdout) {
            continue;
        }
        let finished = bench.run(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
        assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{}", path.display());
        match checked.stdout.contains("[sweep]") {
            true => assert!(finished.stdout.contains("\"runs\":[{"), "{}", path.display()),
            false => drop(finished.report()),
        }
        run += 1;
    }
    assert!(run > 0, "at least one scenario is for any machine");
    assert!(bench.files().is_empty(), "scenarios write nothing where they are run");
}
