//! Turns clap's usage errors into messages of one line, as all other errors are.

use crate::options::Arguments;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Returns a usage error in one line: the problem and its remedy. clap itself writes several paragraphs.
pub(crate) fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "));
    let what = paragraphs.next().unwrap_or_default();
    let what = what.trim_start_matches("error: ").to_owned();
    let tip = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: ").map(str::to_owned));
    let tip = tip.filter(|_| helps(error));
    // If a command has several forms, list them: the option that one form lacks may not be needed in another.
    let forms = forms(&text);
    let lacking = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(lacking)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            lacking.as_slice()
        }
        _ => &[],
    };
    if forms.len() > 1 && lacking.iter().any(|argument| forms.iter().any(|form| form.contains(argument.as_str()))) {
        return format!("{what}: write {}", forms.join(", or "));
    }
    if let Some(how) = location(error).or_else(|| elsewhere(error)) {
        return format!("{what}: {how}");
    }
    if let Some(owners) = owners(error) {
        return format!("{what}: it is an option of {owners}; --help lists the options of this command");
    }
    // clap suggests `--` in case an option is meant as a value, but no value of netlathe looks like an option.
    let tip = tip.filter(|tip| !tip.starts_with("to pass "));
    match (tip, error.kind()) {
        (Some(tip), _) => format!("{what}: {tip}"),
        // Our own value parsers name the remedy; clap's number parser does not.
        (None, ErrorKind::ValueValidation) => of_number(&what).unwrap_or(what),
        (None, _) => match negative(error) {
            Some(option) => {
                format!("{what} after {option}, which takes no negative number: write it without the sign")
            }
            None => {
                let how = unquoted(error).unwrap_or_else(|| "see --help".to_owned());
                format!("{what}: {how}")
            }
        },
    }
}

/// Returns the equivalent of another tool's command or option.
fn elsewhere(error: &clap::Error) -> Option<String> {
    if let Some(ContextValue::String(taken)) = error.get(ContextKind::InvalidSubcommand) {
        return remedy(&COMMANDS, taken);
    }
    let taken = unknown_option(error)?;
    let command = std::env::args().nth(1)?;
    let words: &[(&[&str], &str)] = match command.as_str() {
        "emulate" => &EMULATE,
        "gen" => &GEN,
        "limit" => &LIMIT,
        "measure" => &MEASURE,
        "search" => &SEARCH,
        _ => return None,
    };
    if command == "gen" && !taken.starts_with('-') {
        let is_capture = [".pcap", ".pcapng", ".cap"].iter().any(|end| taken.ends_with(end));
        return Some(if is_capture {
            format!("write --pcap {taken}")
        } else {
            format!("write --out {taken} for a port")
        });
    }
    if command == "measure" && !taken.starts_with('-') {
        return Some(
            "write --pcap FILE, --in PORT, or --only 'udp dport 53' for a filter, with the words of classes".into(),
        );
    }
    remedy(words, taken)
}

/// Returns true unless clap suggests names that differ too much from what the user typed.
fn helps(error: &clap::Error) -> bool {
    let typed = [ContextKind::InvalidSubcommand, ContextKind::InvalidValue, ContextKind::InvalidArg];
    let typed = typed.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(typed)) => Some(typed.trim_start_matches('-')),
        _ => None,
    });
    let suggested = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue, ContextKind::SuggestedArg];
    let suggested: Vec<&str> = suggested
        .into_iter()
        .filter_map(|kind| error.get(kind))
        .flat_map(|value| match value {
            ContextValue::String(one) => vec![one.as_str()],
            ContextValue::Strings(all) => all.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        })
        .map(|name| name.trim_start_matches('-'))
        .collect();
    suggested.is_empty() || typed.is_some_and(|typed| units::nearest(typed, &suggested).is_some())
}

/// Returns the option that a stray word was meant for, if the word is a SPEC or a stream.
fn location(error: &clap::Error) -> Option<String> {
    let word = unknown_option(error).filter(|word| !word.starts_with('-'))?;
    let command = std::env::args().nth(1)?;
    let quoted = if word.contains(char::is_whitespace) { format!("'{word}'") } else { word.to_owned() };
    let first = word.split_whitespace().next().unwrap_or_default();
    let is_spec = is_stage(word, &command);
    let option = match command.as_str() {
        "emulate" if is_spec => "--forward",
        "shape" if is_spec => "--stage",
        "search" if is_spec => "--dut",
        "gen" if ["udp", "tcp", "icmp", "ip", "arp", "eth", "hex"].contains(&first) => "--stream",
        _ => return None,
    };
    Some(format!("write {option} {quoted}"))
}

/// Whether the text has several words and is a stage, or for `emulate` an impairment.
fn is_stage(text: &str, command: &str) -> bool {
    let spec = if command == "emulate" { format!("netem {text}") } else { text.to_owned() };
    text.contains(char::is_whitespace) && engine::stages::StageConfig::parse(&spec).is_ok()
}

fn unknown_option(error: &clap::Error) -> Option<&str> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(taken))) => Some(taken),
        _ => None,
    }
}

/// Looks up what to write instead of a word.
fn remedy(words: &[(&[&str], &str)], taken: &str) -> Option<String> {
    words.iter().find(|(names, _)| names.contains(&taken)).map(|(_, how)| (*how).to_owned())
}

/// Names of commands in other tools.
const COMMANDS: [(&[&str], &str); 6] = [
    (&["capture", "dump", "record", "sniff"], "write netlathe measure --in eth0 --write FILE"),
    (&["replay", "tcpreplay", "play"], "write netlathe gen --out eth0 --pcap FILE"),
    (
        &["generate", "send", "start", "pktgen"],
        "write netlathe gen --out eth0 --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000'",
    ),
    (&["rfc2544", "throughput", "ndr", "pdr"], "write netlathe search --out eth0 --in eth1 --size rfc2544"),
    (&["netem", "impair", "tc", "qdisc"], "write netlathe emulate --between eth0 eth1 --forward 'delay 50ms loss 1%'"),
    (&["police", "policer"], "write netlathe limit --in eth0 --out eth1 --key dst-ip --rate 1Mbps --mode police"),
];

/// Options of comcast, wondershaper and other emulators.
const EMULATE: [(&[&str], &str); 6] = [
    (
        &["--latency", "--delay", "--jitter"],
        "write --forward 'delay 50ms 5ms'; with --between or --on there are --backward and --both, too",
    ),
    (
        &["--packet-loss", "--loss"],
        "write --forward 'loss 1%'; with --between or --on there are --backward and --both, too",
    ),
    (
        &["--target-bw", "--default-bw", "--bandwidth", "--rate"],
        "write --forward 'rate 10mbit'; with --between or --on there are --backward and --both, too",
    ),
    (
        &["--uplink", "--downlink", "--upload", "--download"],
        "with --on, up is --forward 'rate 10mbit' and down --backward",
    ),
    (
        &["--device", "--interface", "-i", "-a"],
        "write --on eth0 for an interface of this host, --between eth0 eth1 for two",
    ),
    (
        &["--match", "--filter", "--target-port", "--target-addr", "--target-proto"],
        "write --class 'web = tcp dport 80', then --forward web='loss 1%'",
    ),
];

/// Options of capture tools.
const MEASURE: [(&[&str], &str); 4] = [
    (&["--filter", "-f", "-Y", "--class", "--match"], "write --only 'udp dport 53', with the words of classes"),
    (&["--out", "-w"], "write --write FILE"),
    (&["-r"], "write --pcap FILE"),
    (&["-i"], "write --in eth0"),
];

/// Options of tcpreplay, tcprewrite, TRex and generators of packets.
const GEN: [(&[&str], &str); 18] = [
    (&["--burst", "--bursts"], "write --rate 'burst 1Mpps for 100us every 10ms', 100 frames each time"),
    (&["--mbps", "-M", "--bandwidth", "-b"], "write --rate 10Mbps"),
    (&["--pps", "-p"], "write --rate 10kpps"),
    (&["--multiplier", "-x", "--mult"], "write --speed 2 for a capture, --rate 2Mpps for streams"),
    (
        &["-m"],
        "write --rate 1Gbps or --rate 1.2Mpps, for a capture also --speed 2; a share is --line-rate 10Gbps --rate 50%, or --rate 5Gbps",
    ),
    (&["--topspeed", "-t", "--flood"], "write --speed max for a capture; streams without --rate are back to back"),
    (&["--limit", "-L", "-c", "-n", "--packets"], "write --count N"),
    (&["--loops", "-l"], "write --loop N for a capture; streams repeat by themselves, for --count N frames"),
    (&["-d", "--time"], "write --duration 10s"),
    (&["--interval", "--ipg", "-I"], "write --gap 10us"),
    (&["-i", "--intf1", "--interface", "--port"], "write --out eth0"),
    (&["-f", "--file"], "write --pcap FILE, or --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000'"),
    (&["--fixcsum", "-C"], "write --rewrite 'checksums right'"),
    (&["--portmap", "-r"], "write --rewrite 'port 80 > 8080'"),
    (&["--pnat", "-N", "--srcipmap", "--dstipmap"], "write --rewrite 'ip 10.0.0.0/8 > 192.168.0.0/16', or src or dst"),
    (&["--enet-dmac", "--enet-smac"], "write --rewrite 'dmac 02:00:00:00:00:02', or smac"),
    (&["--enet-vlan", "--enet-vlan-tag"], "write --rewrite 'vlan 5' or 'vlan none'"),
    (
        &["--size", "-s", "--vlan", "--dst-mac", "--dstmac", "--src-mac", "--srcmac", "--dst-ip", "--src-ip", "--ttl"],
        "write it in the stream: --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000 size 64B vlan 5 dmac 02:00:00:00:00:02'",
    ),
];

/// Options of policers.
const LIMIT: [(&[&str], &str); 6] = [
    (&["--cir", "--bandwidth"], "write --rate 1Mbps"),
    (&["--cbs"], "write --burst 3036B"),
    (&["--pir", "--pbs"], "write --colours 'rfc2698 pir 2Mbps pbs 10kB'"),
    (&["--eir"], "write --colours 'rfc4115 eir 1Mbps ebs 10kB'"),
    (&["--ebs"], "write --colours 'rfc2697 ebs 10kB'"),
    (&["--limit", "--latency"], "write --mode shape --queue 100ms"),
];

/// Options of other search tools.
const SEARCH: [(&[&str], &str); 7] = [
    (&["--stats"], "write --trials FILE, which has a line of JSON for each trial as it ends"),
    (&["--duration", "--trial-duration", "-t"], "write --trial 10s"),
    (&["--rate", "--max-rate"], "write --max 1Mpps for the highest load"),
    (&["--min-rate"], "write --min 1kpps"),
    (&["--frame-size", "--pkt-size"], "write --size 64B"),
    (&["--pdr", "--drop-rate", "--pdr-loss"], "write --loss 0.5%"),
    (&["--precision", "--resolution"], "write --width 0.5%"),
];

/// Returns the commands that have the option that the typed command lacks.
fn owners(error: &clap::Error) -> Option<String> {
    let name = unknown_option(error)?.strip_prefix("--")?;
    let commands = Arguments::command();
    let has = |command: &clap::Command| command.get_arguments().any(|argument| argument.get_long() == Some(name));
    let mut owners: Vec<String> = Vec::new();
    for command in commands.get_subcommands() {
        if has(command) {
            owners.push(command.get_name().to_owned());
        }
        let inner = command.get_subcommands().filter(|inner| has(inner));
        owners.extend(inner.map(|inner| format!("{} {}", command.get_name(), inner.get_name())));
    }
    let (last, before) = owners.split_last()?;
    Some(if before.is_empty() { last.clone() } else { format!("{} and {last}", before.join(", ")) })
}

/// Returns the forms of a command from clap's usage text.
fn forms(text: &str) -> Vec<&str> {
    let usage = text.split("\n\n").find_map(|lines| lines.strip_prefix("Usage: "));
    usage.unwrap_or_default().lines().map(|form| form.trim().trim_end_matches(" [OPTIONS]")).collect()
}

/// Adds a remedy to an error of clap's number parser, which gives none.
fn of_number(what: &str) -> Option<String> {
    let remedies = [
        ("invalid digit found in string", "write a whole number"),
        ("cannot parse integer from empty string", "write a whole number"),
        ("number too large to fit in target type", "the number is too large: write a smaller one"),
    ];
    remedies.into_iter().find_map(|(reason, remedy)| Some(format!("{}{remedy}", what.strip_suffix(reason)?)))
}

/// Detects a value of several words that was not quoted: an option, its first word, and then the unexpected word.
fn unquoted(error: &clap::Error) -> Option<String> {
    let ContextValue::String(taken) = error.get(ContextKind::InvalidArg)? else { return None };
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let is_split = |three: &&[String]| three[0].starts_with("--") && !three[1].starts_with('-') && three[2] == *taken;
    // A word that contains spaces was quoted.
    let apart = !taken.starts_with('-') && !taken.contains(char::is_whitespace);
    let three = words.windows(3).find(is_split).filter(|_| apart)?;
    Some(format!("write a value of several words in quotes, as {} '{} {taken}'", three[0], three[1]))
}

/// Returns the option before a negative number that clap took for an option.
fn negative(error: &clap::Error) -> Option<String> {
    let ContextValue::String(taken) = error.get(ContextKind::InvalidArg)? else { return None };
    taken.strip_prefix('-').filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit() || first == '.'))?;
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let behind = |pair: &&[String]| pair[0].starts_with("--") && pair[1].starts_with(taken);
    words.windows(2).find(behind).map(|pair| pair[0].clone())
}
