//! House rules that no lint covers: which crate may use which, where `unsafe` may be, and that nothing is left
//! half-done. The design document gives the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which crate may use which. A new edge is a design change: argue for it in an ADR, then add it here. Never add
/// `engine → dpdk` or `dpdk → engine`: the engine is pure, and the two meet in `dataplane`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("packet", &["units"]),
    ("measure", &["units"]),
    ("engine", &["units", "packet", "measure"]),
    ("scenario", &["units", "packet", "measure", "engine"]),
    ("sim", &["units", "packet", "measure", "engine"]),
    ("dpdk-sys", &[]),
    ("dpdk", &["units", "packet", "dpdk-sys"]),
    ("dataplane", &["units", "packet", "measure", "engine", "dpdk"]),
    ("probe", &[]),
    ("slice", &["units", "measure", "probe"]),
    ("otg", &["packet"]),
    ("page", &["units", "measure"]),
    ("lab", &[]),
    ("disk", &["units", "engine"]),
    ("service", &[]),
    ("fuzz", &["units", "packet", "measure", "engine", "scenario", "sim", "disk", "probe", "slice", "service", "otg"]),
    (
        "cli",
        &[
            "units", "packet", "measure", "engine", "scenario", "sim", "page", "dpdk", "dataplane", "slice", "probe",
            "lab", "disk", "service", "otg",
        ],
    ),
];

/// The crates that may contain unsafe code. All others inherit the workspace's lints, which forbid it.
const FENCE: [&str; 3] = ["dpdk-sys", "dpdk", "probe"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Every crate's short name and folder.
fn crates() -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(root().join("crates")).expect("there is a folder of crates");
    let folders = entries.map(|e| e.expect("it can be read").path()).filter(|path| path.join("Cargo.toml").is_file());
    folders.map(|path| (path.file_name().expect("a name").to_string_lossy().into_owned(), path)).collect()
}

#[test]
fn crates_depend_one_way() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs, since it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");

    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for package in metadata["packages"].as_array().expect("packages") {
        let Some(name) = package["name"].as_str().and_then(|name| name.strip_prefix("netlathe-")) else {
            wrong.push(format!("{} is not called netlathe-…", package["name"]));
            continue;
        };
        let Some(allowed) = table.get(name) else {
            wrong.push(format!("{name} is a new crate: say in MAY_USE what it may use, and who may use it"));
            continue;
        };
        seen += 1;
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let Some(used) = dependency["name"].as_str().and_then(|name| name.strip_prefix("netlathe-")) else {
                continue;
            };
            // Labs exist for testing, so the tests of any crate may use `lab`.
            let lab_for_tests = used == "lab" && dependency["kind"] == "dev";
            if !allowed.contains(&used) && !lab_for_tests {
                wrong.push(format!("{name} → {used} is against the direction of dependencies"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen, crates().len(), "a crate in crates/ is not in the workspace");
}

#[test]
fn the_table_of_dependencies_is_itself_one_way() {
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    fn reaches(table: &BTreeMap<&str, &[&str]>, from: &str, to: &str) -> bool {
        table.get(from).is_some_and(|used| used.iter().any(|next| *next == to || reaches(table, next, to)))
    }
    for name in table.keys() {
        assert!(!reaches(&table, name, name), "{name} depends on itself");
    }
    assert!(!reaches(&table, "engine", "dpdk") && !reaches(&table, "dpdk", "engine"));
    assert!(table["lab"].is_empty(), "the lab stands alone");
}

/// Plain `cargo test` must build without DPDK and clang, and must build every crate that needs neither.
#[test]
fn plain_cargo_test_covers_the_crates_without_dpdk_and_clang() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest is text");
    let line = manifest.lines().find(|line| line.starts_with("default-members")).expect("default-members");
    let listed: Vec<&str> = line.split('"').filter_map(|part| part.strip_prefix("crates/")).collect();
    // The fuzz targets need a C++ compiler; the command line needs DPDK and clang unless its features are off.
    let apart = ["dpdk-sys", "dpdk", "dataplane", "slice", "cli", "fuzz"];
    let expected: Vec<&str> = MAY_USE.iter().map(|(name, _)| *name).filter(|name| !apart.contains(name)).collect();
    let sorted = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(sorted(&listed), sorted(&expected));
    for (name, used) in MAY_USE {
        if expected.contains(name) {
            assert!(used.iter().all(|used| expected.contains(used)), "{name} uses a crate that needs DPDK or clang");
        }
    }
}

#[test]
fn unsafe_code_stays_behind_the_fence() {
    let mut wrong = Vec::new();
    for (name, folder) in crates() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest is text");
        if FENCE.contains(&name.as_str()) {
            for rule in ["undocumented_unsafe_blocks = \"deny\"", "unsafe_op_in_unsafe_fn = \"deny\""] {
                if !manifest.contains(rule) {
                    wrong.push(format!("{name}/Cargo.toml lacks {rule}"));
                }
            }
            continue;
        }
        let inherits = manifest.lines().skip_while(|line| line.trim() != "[lints]").nth(1).map(str::trim);
        if inherits != Some("workspace = true") {
            wrong.push(format!("{name}/Cargo.toml does not inherit the workspace's lints"));
        }
        for path in sources(&folder) {
            for line in lines_with(&path, |code| has_word(code, "unsafe")) {
                wrong.push(format!("{line}: unsafe outside {FENCE:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_left_half_done() {
    let mut wrong = Vec::new();
    for folder in crates().values() {
        for path in sources(folder) {
            for stub in ["todo!", "unimplemented!", "#[ignore"] {
                let lines = lines_with(&path, |code| code.contains(stub));
                wrong.extend(lines.into_iter().map(|line| format!("{line}: {stub}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `docs/style.md` holds the list, so the page and this test cannot differ.
#[test]
fn banned_turns_appear_only_on_the_style_page() {
    const PAGE: &str = "docs/style.md";
    let page = fs::read_to_string(root().join(PAGE)).expect("the style page is there");
    let turns = banned_turns(&page);
    assert!(turns.len() > 10, "{PAGE} lists too few turns: {turns:?}");
    let Ok(listed) = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output() else {
        println!("SKIP: there is no git");
        return;
    };
    if !listed.status.success() {
        println!("SKIP: this is not a checkout of git");
        return;
    }
    let mut hits = Vec::new();
    let mut searched = 0;
    for name in String::from_utf8(listed.stdout).expect("file names are text").split_terminator('\0') {
        let path = Path::new(name);
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let is_ours = ["rs", "md", "toml", "py", "sh", "c", "h", "yml"].contains(&extension) || name == "Makefile";
        // A tracked file may be deleted in the working tree.
        let Ok(text) = fs::read_to_string(root().join(path)) else { continue };
        if is_ours && name != PAGE {
            searched += 1;
            hits.extend(turns_in(&text, &turns).into_iter().map(|(line, turn)| format!("{name}:{line}: {turn}")));
        }
    }
    assert!(searched > 300, "only {searched} files were searched");
    assert!(hits.is_empty(), "reword these; {PAGE} says how:\n{}", hits.join("\n"));
}

/// The turns in backticks of the section "Turns we do not use", without its introduction.
fn banned_turns(page: &str) -> Vec<String> {
    let section = page.split("\n## Turns we do not use\n").nth(1).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let (_, list) = section.split_once(":\n").expect("an introduction that ends with a colon");
    list.split('`').skip(1).step_by(2).map(str::to_lowercase).collect()
}

/// Line numbers and turns found in a text, as whole words and in any case.
fn turns_in<'a>(text: &str, turns: &'a [String]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        for turn in turns {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let is_hit = line
                .match_indices(turn.as_str())
                .any(|(at, _)| !line[..at].ends_with(is_word) && !line[at + turn.len()..].starts_with(is_word));
            if is_hit {
                found.push((n + 1, turn.as_str()));
            }
        }
    }
    found
}

#[test]
fn turns_are_found_as_whole_words_in_any_case() {
    let page = "# Style\n\n## Turns we do not use\nA test in `x.rs` searches:\n`Foo`, `bar baz`.\n\n## Next\n`other`\n";
    let turns = banned_turns(page);
    assert_eq!(turns, ["foo", "bar baz"]);
    let text = "A fooled line\n// Foo, and\nbar baz_of\nBAR baz: it\nother";
    assert_eq!(turns_in(text, &turns), [(2, "foo"), (4, "bar baz")]);
}

/// All Rust files of a crate, tests and build script included.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns `file:line` of every line whose code meets a condition.
fn lines_with(path: &Path, matches: impl Fn(&str) -> bool) -> Vec<String> {
    let code = code_only(&fs::read_to_string(path).expect("source is text"));
    let shown = path.strip_prefix(root()).unwrap_or(path).display().to_string();
    let numbered = code.lines().enumerate().filter(|(_, line)| matches(line));
    numbered.map(|(n, _)| format!("{shown}:{}", n + 1)).collect()
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

/// The source with comments and literals blanked out. Line numbers stay the same.
fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let in_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest).filter(|_| !in_word) {
            length
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' && is_character(rest) {
            quoted(rest, '\'')
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let (blanked, after) = rest.split_at(length);
        code.push(' ');
        code.extend(blanked.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    code
}

/// Length of a block comment. Block comments may nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let here = &text.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of `r"…"`, `r#"…"#`, `br…` or `cr…`, if the text begins with one.
fn raw_string(text: &str) -> Option<usize> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = after.bytes().take_while(|b| *b == b'#').count();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let closed = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(text.len() - body.len() + closed)
}

/// Length of a quoted literal, including its escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Whether a quote begins a character and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut after = text.chars().skip(1);
    match after.next() {
        Some('\\') => true,
        Some(_) => after.next() == Some('\''),
        None => false,
    }
}

#[test]
fn blanks_comments_and_literals_but_not_code() {
    let blanked = |source: &str| !has_word(&code_only(source), "unsafe");
    for harmless in [
        "// unsafe",
        "/* a /* b */ unsafe */ fn f() {}",
        "let s = \"unsafe \\\" unsafe\";",
        "let s = r#\"unsafe \" unsafe\"#;",
        "let s = br\"unsafe\";",
        "let c = '\"'; // unsafe",
        "fn unsafe_free<'a>(x: &'a str) {} // it's 'unsafe'",
        "#![forbid(unsafe_code)]",
    ] {
        assert!(blanked(harmless), "{harmless:?} → {:?}", code_only(harmless));
    }
    for code in [
        "unsafe { f() }",
        "let c = '\"'; unsafe { f(\"\") }",
        "fn f<'a>(x: &'a u8) { unsafe {} }",
        "/* c */ unsafe fn g();",
        "let s = r\"\\\"; unsafe {}",
        "for_r\"x\"; unsafe {}",
    ] {
        assert!(!blanked(code), "{code:?} → {:?}", code_only(code));
    }
    assert_eq!(code_only("a /* \n\n */ b\n").lines().count(), 3, "lines must keep their numbers");
}

#[test]
fn every_decision_has_a_date_and_a_status_and_is_listed() {
    let folder = root().join("docs/adr");
    let list = fs::read_to_string(folder.join("README.md")).expect("the list of decisions is text");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(&folder).expect("a folder can be read") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        seen += 1;
        if !list.contains(&format!("({name})")) {
            wrong.push(format!("{name} is not in docs/adr/README.md"));
        }
        let text = fs::read_to_string(&path).expect("a decision is text");
        let line = text.lines().nth(2).unwrap_or_default();
        let status = line.strip_prefix('*').and_then(|line| line.strip_suffix('*')).and_then(|l| l.split_once(", "));
        let is_date = |date: &str| date.len() == 10 && date.split('-').all(|part| part.parse::<u16>().is_ok());
        let is_status = |status: &str| status == "accepted" || status.starts_with("superseded by ");
        if !status.is_some_and(|(date, status)| is_date(date) && is_status(status)) {
            wrong.push(format!("{name}: the third line must be like *2026-11-21, accepted*; it is {line:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 0, "there are no decisions");
}

/// The layers of `crates/cli/src`, by folder or file, and which other layers each may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("output", &[]),
    ("rights", &["output"]),
    ("options", &["output"]),
    ("plan", &["output", "rights", "options"]),
    ("render", &["output", "options", "plan"]),
    ("run", &["output", "rights", "options", "plan", "render"]),
    ("main", &["output", "options", "plan", "render", "run"]),
];
/// The largest permitted circle of files that use each other.
const LARGEST_CIRCLE: usize = 3;

#[test]
fn the_command_line_has_layers_and_no_large_circle_of_files() {
    let source = root().join("crates/cli/src");
    let files = sources(&source).into_iter().map(|path| {
        let name = path.strip_prefix(&source).expect("it is below").with_extension("").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("source is text"))
    });
    let graph = graph(&files.collect());
    assert!(graph.len() > 60 && graph.values().map(BTreeSet::len).sum::<usize>() > 200, "too little found: {graph:?}");
    let wrong = [against_layers(&graph), large_circles(&graph)].concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn layers_and_circles_are_found() {
    let files =
        |texts: &[(&str, &str)]| graph(&texts.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect());
    let main = ("main", "mod options;\nmod plan;\nmod run;\nfn main() { run::f(plan::f()) }");
    let good = files(&[
        main,
        ("options/mod", "pub struct Options; // crate::run::f"),
        ("plan/mod", "use crate::{options::Options, output};\nmod tests { use crate::run::f; }"),
        ("output", "pub fn say() {}"),
        ("run/mod", "mod a;\nmod b;\npub fn f() { a::f(); }"),
        ("run/a", "use super::b::{self, g};"),
        ("run/b", "fn g() { self::h(); crate::output::say(); }"),
    ]);
    assert_eq!(good["plan/mod"], BTreeSet::from(["options/mod".to_owned(), "output".to_owned()]));
    assert_eq!(good["run/a"], BTreeSet::from(["run/b".to_owned()]));
    assert_eq!(good["run/mod"], BTreeSet::from(["run/a".to_owned()]));
    assert!(against_layers(&good).is_empty() && large_circles(&good).is_empty(), "{good:?}");
    let up = files(&[main, ("plan/mod", "fn f() { crate::run::f() }"), ("run/mod", ""), ("options/mod", "")]);
    assert_eq!(against_layers(&up), ["plan/mod uses run/mod: plan may use output, rights, options"]);
    let circle = |last: &str| {
        files(&[
            ("run/a", "use super::b::f;"),
            ("run/b", "use crate::run::{c::f, d::f as g};"),
            ("run/c", "use crate::run::d;"),
            ("run/d", last),
        ])
    };
    assert!(large_circles(&circle("use super::b;")).is_empty(), "three are allowed");
    assert_eq!(large_circles(&circle("use super::a;")), ["a circle of 4 files: run/a, run/b, run/c, run/d"]);
}

/// Which file uses which, by the paths in its code. The `tests` module of a file is ignored: tests may use anything.
fn graph(files: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let module = |name: &str| -> Vec<String> {
        let parts = name.strip_suffix("/mod").unwrap_or(name).split('/');
        parts.filter(|part| *part != "main").map(str::to_owned).collect()
    };
    let by_module: BTreeMap<Vec<String>, &String> = files.keys().map(|name| (module(name), name)).collect();
    let mut graph = BTreeMap::new();
    for (name, text) in files {
        let (here, code) = (module(name), code_only(text));
        let code = code.split("mod tests {").next().unwrap_or_default();
        let mut used = BTreeSet::new();
        for path in paths(code) {
            let mut at = match path[0].as_str() {
                "crate" => Vec::new(),
                "super" | "self" => here.clone(),
                child if by_module.contains_key(&[&here[..], &[child.to_owned()]].concat()) => here.clone(),
                _ => continue,
            };
            for part in &path {
                match part.as_str() {
                    "crate" | "self" => {}
                    "super" => drop(at.pop()),
                    part => at.push(part.to_owned()),
                }
            }
            // The last parts of a path name items in the file, so remove them.
            while !at.is_empty() && !by_module.contains_key(&at) {
                at.pop();
            }
            used.extend(by_module.get(&at).filter(|used| **used != name).map(|used| (*used).clone()));
        }
        graph.insert(name.clone(), used);
    }
    graph
}

/// Returns all paths of a source that have at least two parts. Groups such as `a::{b, c}` are expanded.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut path: Vec<String> = Vec::new();
    // For each open brace, the path before it, if the brace belongs to a path.
    let mut groups: Vec<Option<Vec<String>>> = Vec::new();
    let mut rest = code;
    let mut end = |path: &mut Vec<String>, groups: &[Option<Vec<String>>]| {
        let whole = [groups.last().cloned().flatten().unwrap_or_default(), std::mem::take(path)].concat();
        if whole.len() > 1 {
            found.push(whole);
        }
    };
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            path.push(rest[..length].to_owned());
            rest = rest[length..].trim_start();
            match rest.strip_prefix("::").map(str::trim_start) {
                Some(after) if after.starts_with('{') => {
                    let before = groups.last().cloned().flatten().unwrap_or_default();
                    groups.push(Some([before, std::mem::take(&mut path)].concat()));
                    rest = &after[1..];
                }
                Some(after) if after.starts_with(is_word) => rest = after,
                _ => end(&mut path, &groups),
            }
            continue;
        }
        match first {
            '{' => groups.push(None),
            '}' => drop(groups.pop()),
            _ => {}
        }
        rest = &rest[first.len_utf8()..];
    }
    found
}

fn against_layers(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let layer = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    let mut wrong = Vec::new();
    for (name, used) in graph {
        let own = layer(name);
        let Some((_, allowed)) = LAYERS.iter().find(|(of, _)| *of == own) else {
            wrong.push(format!("{name} is in no layer: put it into one, or add one to LAYERS"));
            continue;
        };
        for used in used.iter().filter(|used| layer(used) != own && !allowed.contains(&layer(used).as_str())) {
            wrong.push(format!("{name} uses {used}: {own} may use {}", allowed.join(", ")));
        }
    }
    wrong
}

/// Circles of more than `LARGEST_CIRCLE` files that use each other.
fn large_circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(next) = open.pop() {
            open.extend(graph.get(next).into_iter().flatten().filter(|used| seen.insert((*used).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|name| (name, reach(name))).collect();
    let circle = |name: &String| -> Vec<String> {
        reached[name]
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(name)))
            .cloned()
            .collect()
    };
    let circles: BTreeSet<Vec<String>> =
        graph.keys().map(circle).filter(|circle| circle.len() > LARGEST_CIRCLE).collect();
    circles.iter().map(|circle| format!("a circle of {} files: {}", circle.len(), circle.join(", "))).collect()
}
