//! The keys of a scenario. The parser, the paths of `--set` and `[sweep]`, and `netlathe help keys` all use this list.

use engine::Kind;

const fn key(name: &'static str, grammar: &'static str, summary: &'static str, example: &'static str) -> Kind {
    Kind { name, grammar, summary, example }
}

/// All keys, each prefixed with the tables that contain it: `pipeline.class.rate`.
pub const KEYS: &[Kind] = &[
    key("schema", "schema = 1", "the version of the format", "schema = 1"),
    key("seed", "seed = N", "seed of all random numbers", "seed = 7"),
    key("duration", "duration = TIME", "time limit; virtual time in virtual runs", "duration = \"10s\""),
    key(
        "timeline",
        "timeline = [\"at TIME: PATH = VALUE\" or \"at TIME: profile NAME\", …]",
        "changes while it runs",
        "timeline = [\"at 10s: pipeline1.rate = 1Gbps\"]",
    ),
    key("profile", "[profile.NAME]", "settings that a timeline makes together: PATH = \"VALUE\"", "[profile.weak]"),
    key("until", "until = NAME", "the program whose end ends the run", "until = \"client\""),
    key("sweep", "[sweep]", "values of several runs: \"PATH\" = [VALUE, …], each with each", "[sweep]"),
    key("sweep.zip", "zip = true", "the lists of a sweep side by side", "zip = true"),
    key("lab", "[lab]", "a lab that is built for the run", "[lab]"),
    key("lab.name", "name = TEXT", "name of the lab; unique to the run if not given", "name = \"wide\""),
    key("lab.clients", "clients = N", "number of clients, 1 to 99", "clients = 3"),
    key("lab.mtu", "mtu = BYTES", "longest packet, on all links", "mtu = 9000"),
    key("lab.queues", "queues = N", "queues of each interface", "queues = 2"),
    key("program", "[[program]]", "a program that runs beside the pipelines", "[[program]]"),
    key("program.name", "name = TEXT", "name in the report and in expectations", "name = \"client\""),
    key(
        "program.command",
        "command = [WORD, …] or a line for sh",
        "the program and its arguments",
        "command = [\"iperf3\", \"-s\"]",
    ),
    key(
        "program.namespace",
        "namespace = NODE or NAME",
        "node of the lab, else a namespace of ip netns",
        "namespace = \"server\"",
    ),
    key("program.start", "start = TIME", "start after the first frames, or after `after`", "start = \"500ms\""),
    key("program.after", "after = \"NAME ready\" or \"NAME end\"", "the event to wait for", "after = \"server ready\""),
    key(
        "program.ready",
        "ready = \"tcp PORT\", \"udp PORT\", \"line TEXT\" or \"file PATH\"",
        "when the program is ready",
        "ready = \"tcp 5201\"",
    ),
    key("program.ready-within", "ready-within = TIME", "time limit for becoming ready", "ready-within = \"5s\""),
    key("program.status", "status = N or \"any\"", "the status that it must end with", "status = 0"),
    key("pipeline", "[[pipeline]]", "frames from a source to an output, one or more", "[[pipeline]]"),
    key("pipeline.name", "name = TEXT", "name in reports and expectations", "name = \"down\""),
    key("pipeline.in", "in = PORT", "where frames come from", "in = \"pcap:in.pcap\""),
    key(
        "pipeline.stream",
        "stream = STREAM or a list",
        "streams to generate",
        "stream = \"udp 10.0.0.1:1000 > 10.0.0.2:2000\"",
    ),
    key(
        "pipeline.gateway",
        "gateway = ADDRESS or a list",
        "neighbour of streams without dmac",
        "gateway = \"10.0.0.1\"",
    ),
    key("pipeline.count", "count = N", "number of frames of all streams, or at most of the capture", "count = 1000"),
    key("pipeline.replay", "replay = FILE", "a capture to send again", "replay = \"in.pcap\""),
    key("pipeline.speed", "speed = NUMBER or \"max\"", "speed of a replay", "speed = 0.5"),
    key("pipeline.times", "times = N", "rounds of a replay, 0 without end", "times = 3"),
    key("pipeline.loop-gap", "loop-gap = TIME", "time between two rounds of a replay", "loop-gap = \"1s\""),
    key("pipeline.max-gap", "max-gap = TIME", "longest gap within a round of a replay", "max-gap = \"20ms\""),
    key("pipeline.rewrite", "rewrite = CHANGE or a list", "changes of replayed frames", "rewrite = \"vlan 5\""),
    key("pipeline.out", "out = PORT", "where frames go", "out = \"wire:10G\""),
    key("pipeline.rate", "rate = WAVE", "rate of departures", "rate = \"5Gbps\""),
    key("pipeline.gap", "gap = GAP", "time from start to start of departures", "gap = \"fixed 10us\""),
    key("pipeline.pacer", "pacer = PACER", "what times departures", "pacer = \"filler\""),
    key("pipeline.filler", "filler = FILLER", "filler frames", "filler = \"self\""),
    key(
        "pipeline.line-rate",
        "line-rate = RATE",
        "line rate of an output that does not report it",
        "line-rate = \"10G\"",
    ),
    key("pipeline.catch-up", "catch-up = \"all\", \"none\" or N", "what follows late departures", "catch-up = 3"),
    key("pipeline.stages", "stages = [STAGE, …]", "what happens to frames, first to last", "stages = [\"delay 20ms\"]"),
    key("pipeline.sync", "sync = ORDER", "order of sources", "sync = \"order 10.0.0.1,10.0.0.2 gap 5ms\""),
    key("pipeline.buffer", "buffer = TIME", "delay of the schedule after the first frame", "buffer = \"5ms\""),
    key("pipeline.one-way", "one-way = true", "carries nothing back", "one-way = true"),
    key("pipeline.return", "return = [STAGE, …]", "stages of the return path", "return = [\"delay 20ms\"]"),
    key("pipeline.class", "[[pipeline.class]]", "frames with a schedule of their own", "[[pipeline.class]]"),
    key("pipeline.class.name", "name = TEXT", "name of the class", "name = \"web\""),
    key(
        "pipeline.class.match",
        "match = RULE",
        "frames of the class; the last class has none",
        "match = \"tcp dport 80\"",
    ),
    key("pipeline.class.stages", "stages = [STAGE, …]", "stages of the class", "stages = [\"loss 1%\"]"),
    key("pipeline.class.rate", "rate = WAVE", "rate of the class", "rate = \"1Gbps\""),
    key("pipeline.class.gap", "gap = GAP", "time between departures of the class", "gap = \"10us\""),
    key(
        "pipeline.class.sync",
        "sync = ORDER",
        "order of sources of the class",
        "sync = \"order 10.0.0.1,10.0.0.2 gap 5ms\"",
    ),
    key("pipeline.class.buffer", "buffer = TIME", "delay of the schedule of the class", "buffer = \"5ms\""),
    key("expect", "[[expect]]", "a figure and its bound", "[[expect]]"),
    key("expect.that", "that = \"FIGURE COMPARISON BOUND\"", "the expectation", "that = \"down.drops.loss < 30\""),
];

/// The keys of a table, by its name: `pipeline.class`, or an empty name for the top level of the file.
pub(crate) fn of_table(table: &str) -> Vec<&'static str> {
    let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
    KEYS.iter().filter_map(|key| key.name.strip_prefix(&prefix)).filter(|key| !key.contains('.')).collect()
}

/// Whether a key contains tables instead of a value.
pub(crate) fn is_table(key: &str) -> bool {
    KEYS.iter().any(|other| other.name == key && other.grammar.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::{KEYS, is_table};

    /// A scenario around the table of a key, without that key.
    fn around(table: &str, key: &str) -> String {
        let source = match key {
            "in" => "",
            "stream" | "gateway" | "count" => "stream = \"udp 10.0.0.1:1 > 10.0.0.2:2\"\n",
            "replay" | "speed" | "times" | "loop-gap" | "max-gap" | "rewrite" => "replay = \"in.pcap\"\n",
            _ => "in = \"pcap:in.pcap\"\n",
        };
        let (input, output) = match key {
            "return" | "line-rate" | "one-way" => ("in = \"eth0\"\n", "out = \"eth1\"\n"),
            "gateway" => (source, "out = \"eth1\"\n"),
            _ => (source, "out = \"wire:10G\"\n"),
        };
        let body: String = input
            .lines()
            .chain(output.lines())
            .filter(|line| !line.starts_with(&format!("{key} =")))
            .map(|line| format!("{line}\n"))
            .collect();
        let gap = if ["pacer", "filler", "catch-up", "buffer"].contains(&key) { "gap = \"20us\"\n" } else { "" };
        match table {
            "" => format!("[[pipeline]]\n{body}[[program]]\nname = \"client\"\ncommand = \"true\"\n"),
            "pipeline" => format!("[[pipeline]]\n{body}{gap}"),
            "sweep" => format!("[[pipeline]]\n{body}[sweep]\nseed = [1, 2]\n"),
            "lab" => format!("[[pipeline]]\n{body}[lab]\n"),
            "program" => {
                let name = if key == "name" { "" } else { "name = \"a\"\n" };
                let command = if key == "command" { "" } else { "command = \"true\"\n" };
                format!("[[program]]\nname = \"server\"\ncommand = \"true\"\n[[program]]\n{name}{command}")
            }
            "pipeline.class" => format!("[[pipeline]]\n{body}[[pipeline.class]]\n{}{gap}", if key == "match" { "" } else { "match = \"udp\"\n" }),
            "expect" => "[[pipeline]]\nname = \"down\"\nin = \"pcap:in.pcap\"\nout = \"null\"\nstages = [\"loss 1%\"]\n[[expect]]\n".to_owned(),
            other => panic!("{other} is a new table: write its scenario here"),
        }
    }

    #[test]
    fn each_example_is_accepted_in_its_table() {
        for key in KEYS.iter().filter(|key| !is_table(key.name)) {
            let (table, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
            let schema = if name == "schema" { "" } else { "schema = 1\n" };
            let text = match table {
                "" => format!("{schema}{}\n{}", key.example, around(table, name)),
                _ => format!("{schema}{}{}\n", around(table, name), key.example),
            };
            if let Err(problems) = crate::read("a.toml", &text, None) {
                panic!("{}: {problems}\n{text}", key.name);
            }
            assert!(key.example.starts_with(&format!("{name} = ")) && !key.summary.is_empty(), "{}", key.name);
        }
    }
}
