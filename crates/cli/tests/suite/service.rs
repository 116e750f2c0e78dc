//! `serve`, `--control`, `ctl` and `top`: runs as resources over HTTP. The tests write the HTTP requests themselves.

use crate::common::Bench;
use crate::typed::{Rule, Step};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit. Whatever takes longer hangs.
const NEVER: Duration = Duration::from_secs(60);

/// A scenario that ends at once, in virtual time.
const SHORT: &str = "schema = 1\n[[pipeline]]\nname = \"down\"\nstream = [\"udp 10.0.0.1:1 > 10.0.0.2:9 size 64B\"]\n\
                     count = 20000\nout = \"null\"\nrate = \"100kpps\"\nstages = [\"loss 10%\"]\n";

/// The same scenario with a run of hours.
fn long() -> String {
    SHORT.replace("count = 20000", "count = 2000000000000")
}

/// A `netlathe serve`, or a run with a socket. Dropping it kills the process.
struct Service {
    process: Child,
    errors: BufReader<ChildStderr>,
    socket: PathBuf,
    /// The address that it prints when it listens.
    address: String,
}

impl Service {
    /// Starts `netlathe serve`, and waits until it listens.
    fn start(bench: &Bench, options: &[&str]) -> Self {
        let socket = bench.path("s.sock");
        let listen = format!("unix:{}", socket.display());
        let mut command = bench.command(["serve"]);
        if !options.contains(&"--listen") {
            command.args(["--listen", &listen]);
        }
        let mut service = Service::of(command.args(options), bench, socket);
        service.listens();
        service
    }

    /// Starts a run with a socket, and waits until it listens.
    fn of_run(bench: &Bench, scenario: &str) -> Self {
        fs::write(bench.path("run.toml"), scenario).expect("a file");
        let socket = bench.path("run.sock");
        let mut command = bench.command(["run", "run.toml", "--json", "--control", "unix:run.sock"]);
        command.stdout(Stdio::piped());
        let service = Service::of(&mut command, bench, socket);
        wait_for("the socket of the run", || service.socket.exists());
        service
    }

    fn of(command: &mut Command, bench: &Bench, socket: PathBuf) -> Self {
        let command = command.env("XDG_RUNTIME_DIR", bench.path("")).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary runs");
        let errors = BufReader::new(process.stderr.take().expect("a pipe"));
        Service { process, errors, socket, address: String::new() }
    }

    /// Waits until it prints its address.
    #[track_caller]
    fn listens(&mut self) {
        let mut said = String::new();
        while self.address.is_empty() {
            let before = said.len();
            self.errors.read_line(&mut said).expect("text");
            assert!(said.len() > before, "it ended: {said}");
            let line = said[before..].trim();
            self.address = line.split_once("listening on ").map_or_else(String::new, |(_, address)| address.to_owned());
        }
    }

    /// Sends a request. Returns the status, the head and the body.
    fn ask(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> Answer {
        let stream = UnixStream::connect(&self.socket).expect("it listens");
        exchange(stream, method, path, "localhost", None, body)
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// Starts a run. Returns its number.
    fn post(&self, scenario: &str) -> u64 {
        let answer = self.ask("POST", "/v1/runs", Some(("application/toml", scenario)));
        assert_eq!(answer.status, 201, "{}", answer.body);
        let run = answer.json();
        let id = run["id"].as_u64().expect("a number");
        assert!(answer.head.contains(&format!("location: /v1/runs/{id}\r\n")), "{}", answer.head);
        id
    }

    fn wait_until(&self, id: u64, state: &str) -> Value {
        let mut run = Value::Null;
        wait_for(state, || {
            run = self.get(&format!("/v1/runs/{id}"));
            run["state"] == state
        });
        run
    }

    /// Sends a signal, and waits until the process ends.
    fn end(&mut self, signal: &str) -> Option<i32> {
        kill(self.process.id(), signal);
        let mut status = None;
        wait_for("the end", || {
            status = self.process.try_wait().expect("it is ours");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The test may have ended the process already.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    /// Returns the message of an error. The error must also have a remedy.
    fn error(&self) -> String {
        let error = &self.json()["error"];
        assert!(error["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{error}");
        error["message"].as_str().expect("a message").to_owned()
    }
}

fn exchange(
    mut stream: impl std::io::Read + std::io::Write,
    method: &str,
    path: &str,
    host: &str,
    token: Option<&str>,
    body: Option<(&str, &str)>,
) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    if let Some(token) = token {
        head += &format!("Authorization: Bearer {token}\r\n");
    }
    if let Some((kind, body)) = body {
        head += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
    }
    let text = head + "\r\n" + body.map_or("", |(_, body)| body);
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head[9..12].parse().expect("a status");
    Answer { status, head: format!("{head}\r\n"), body: body.to_owned() }
}

fn kill(process: u32, signal: &str) {
    let status = Command::new("kill").args([&format!("-{signal}"), &process.to_string()]).status();
    assert!(status.expect("every Linux has it").success());
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < NEVER, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The processes whose command line names a path.
fn processes_with(path: &Path) -> usize {
    let wanted = path.display().to_string();
    let entries = fs::read_dir("/proc").expect("Linux has it").flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|entry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&wanted))
        })
        .count()
}

#[test]
fn a_posted_scenario_runs_and_events_and_metrics_equal_its_report() {
    let bench = Bench::new();
    let mut service = Service::start(&bench, &[]);
    let mut events = UnixStream::connect(&service.socket).expect("it listens");
    events.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut events = BufReader::new(events).lines().map(|line| line.expect("text"));
    assert!(events.any(|line| line == "content-type: text/event-stream"));
    // The service now checks its runs ten times a second.
    thread::sleep(Duration::from_millis(300));
    let id = service.post(SHORT);
    let mut kinds = Vec::new();
    let end = loop {
        let line = events.next().expect("events go on");
        if let Some(kind) = line.strip_prefix("event: ") {
            kinds.push(kind.to_owned());
        }
        if let Some(data) = line.strip_prefix("data: ")
            && kinds.last().is_some_and(|kind| kind == "end")
        {
            break serde_json::from_str::<Value>(data).expect("JSON");
        }
    };
    assert!(kinds.contains(&"state".to_owned()) && kinds.contains(&"progress".to_owned()), "{kinds:?}");

    let run = service.get(&format!("/v1/runs/{id}"));
    let report = service.get(&format!("/v1/runs/{id}/report"));
    assert_eq!((&run["state"], &run["status"], &run["caveats"]), (&json!("ended"), &json!(0), &report["caveats"]));
    let page = service.ask("GET", &format!("/v1/runs/{id}/page"), None);
    let is_drawn = page.body.starts_with("<!DOCTYPE html>") && page.body.contains("<svg");
    assert!(page.status == 200 && is_drawn, "{}", page.body);
    let pipeline = &report["pipelines"][0];
    assert!(pipeline["drops"]["loss"].as_u64().is_some_and(|lost| lost > 1000), "{pipeline}");
    for figures in [&run["figures"]["pipelines"][0], &end["figures"]["pipelines"][0]] {
        for name in ["in", "out", "drops", "held", "copies", "starved"] {
            assert_eq!(figures[name], pipeline[name], "{name}");
        }
    }
    let metrics = service.ask("GET", "/metrics", None);
    assert!(metrics.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", metrics.head);
    let figure = |name: &str, labels: &str| {
        let series = format!("{name}{{run=\"{id}\",pipeline=\"down\",{labels}}} ");
        let line = metrics.body.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("no {series} in {}", metrics.body)).parse::<u64>().expect("a count")
    };
    for (direction, way) in [("in", &pipeline["in"]), ("out", &pipeline["out"])] {
        let labels = format!("direction=\"{direction}\"");
        assert_eq!(json!(figure("netlathe_frames_total", &labels)), way["frames"]);
        assert_eq!(json!(figure("netlathe_bytes_total", &labels)), way["bytes"]);
    }
    assert_eq!(
        json!(figure("netlathe_dropped_frames_total", "direction=\"out\",reason=\"loss\"")),
        pipeline["drops"]["loss"]
    );

    // Virtual time is exact.
    let sent = pipeline["out"]["frames"].as_u64().expect("a count");
    for (name, times) in [("netlathe_lateness_seconds", sent), ("netlathe_gap_error_seconds", sent - 1)] {
        assert_eq!(figure(&format!("{name}_count"), "direction=\"out\""), times, "{name}");
        let least =
            format!("{name}_bucket{{le=\"9.313225746154786e-10\",run=\"{id}\",pipeline=\"down\",direction=\"out\"}} ");
        let count =
            metrics.body.lines().find_map(|line| line.strip_prefix(&least)).and_then(|count| count.parse().ok());
        assert_eq!(count, Some(times), "{name}");
    }

    assert_eq!(service.ask("DELETE", &format!("/v1/runs/{id}"), None).status, 204);
    assert_eq!(service.ask("GET", &format!("/v1/runs/{id}"), None).status, 404);
    let json = r#"{"schema": 1, "pipeline": [{"name": "a", "stream": ["udp 10.0.0.1:1 > 10.0.0.2:9"], "count": 5, "out": "null"}]}"#;
    let answer = service.ask("POST", "/v1/runs", Some(("application/json; charset=utf-8", json)));
    assert_eq!(answer.status, 201, "{}", answer.body);
    let run = service.wait_until(answer.json()["id"].as_u64().expect("a number"), "ended");
    assert_eq!(run["figures"]["pipelines"][0]["out"]["frames"], 5);
    assert_eq!(service.end("TERM"), Some(0));
}

#[test]
fn bad_requests_are_refused_with_a_remedy() {
    let bench = Bench::new();
    let service = Service::start(&bench, &["--most", "1"]);
    let toml = "application/toml";
    let files = "schema = 1\n[[pipeline]]\nname = \"a\"\nin = \"pcap:/etc/passwd\"\nout = \"null\"\n";
    let too_long = "#".repeat((1 << 20) + 1);
    for (method, path, body, status) in [
        ("GET", "/v1/run", None, 404),
        ("GET", "/v1/runs/7", None, 404),
        ("GET", "/v1/runs/+1", None, 404),
        ("GET", "/v1/runs/%ff", None, 404),
        ("PUT", "/v1/runs", None, 405),
        ("PUT", "/v1/runs?start-at=+5s", None, 405),
        ("GET", "/v1/runs?start-at=+5s", None, 400),
        ("GET", "/v1/runs?state=ended", None, 400),
        ("POST", "/v1/runs", Some(("text/plain", SHORT)), 415),
        ("POST", "/v1/runs", None, 415),
        ("POST", "/v1/runs", Some((toml, &*too_long)), 413),
        ("POST", "/v1/runs", Some((toml, "schema = 1")), 422),
        ("POST", "/v1/runs", Some((toml, files)), 422),
        ("POST", "/v1/runs", Some(("application/json", "{\"schema\": null}")), 422),
        ("PATCH", "/v1/runs/7/settings", Some(("application/json", "{\"set\": {\"a\": \"b\"}}")), 404),
    ] {
        let answer = service.ask(method, path, body);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert!(!answer.error().is_empty());
    }
    for (query, status, said) in [
        ("start_at=+5s", 400, "the query is wrong"),
        ("start-at=+5s&start-at=+6s", 400, "the query is wrong"),
        ("start-at=+5s", 422, "no live port"),
    ] {
        let answer = service.ask("POST", &format!("/v1/runs?{query}"), Some((toml, SHORT)));
        assert_eq!((answer.status, &answer.json()["error"]["where"]), (status, &json!("start-at")), "{query}");
        assert!(answer.error().contains(said), "{}", answer.body);
    }
    // These instants are refused before any port is opened.
    let live = SHORT.replace("out = \"null\"", "out = \"dpdk:net_null0\"");
    for (instant, said) in [
        ("stdin", "'stdin' is not an instant"),
        ("", "is not an instant"),
        ("+5", "has no unit"),
        ("18:00:00", "has no date"),
        ("2026-11-25T18:00:00", "has no time zone"),
        ("2020-02-29T00:00:00Z", "2020-02-29T00:00:00.000000000Z was"),
        ("2020-02-29T00:00:37TAI", "2020-02-29T00:00:00.000000000Z was"),
        ("+101d", "a run may wait for"),
        ("+0s", "by this host's clock"),
    ] {
        let answer = service.ask("POST", &format!("/v1/runs?start-at={instant}"), Some((toml, &live)));
        assert_eq!((answer.status, &answer.json()["error"]["where"]), (422, &json!("start-at")), "{instant}");
        assert!(answer.error().contains(said), "{instant}: {}", answer.body);
    }
    assert_eq!(service.get("/v1/runs")["runs"], json!([]), "none of them was started");
    let wrong = service.ask("POST", "/v1/runs", Some((toml, &SHORT.replace("100kpps", "100"))));
    assert_eq!(wrong.status, 422);
    assert!(wrong.json()["error"]["where"].as_str().is_some_and(|at| at.starts_with("scenario:7:")), "{}", wrong.body);

    let id = service.post(&long());
    service.wait_until(id, "running");
    let patch = |body: &str| service.ask("PATCH", &format!("/v1/runs/{id}/settings"), Some(("application/json", body)));
    for body in ["{}", "{\"set\": {}}", "{\"set\": {\"a\": \"b\"}, \"when\": 1}", "[", "{\"set\": {\"a\": 1}}"] {
        assert_eq!(patch(body).status, 422, "{body}");
    }
    let of_file = patch("{\"set\": {\"down.gap\": \"table /etc/passwd\"}}");
    assert!(of_file.status == 422 && of_file.error().contains("not name files"), "{}", of_file.body);
    let more = service.ask("POST", "/v1/runs", Some((toml, SHORT)));
    assert_eq!((more.status, more.error().contains("the maximum of this service")), (429, true));
    for left in ["report", "page"] {
        assert_eq!(service.ask("GET", &format!("/v1/runs/{id}/{left}"), None).status, 409);
    }
    let deleted = service.ask("DELETE", &format!("/v1/runs/{id}"), None);
    assert_eq!(deleted.status, 202, "{}", deleted.body);
    assert_eq!(service.wait_until(id, "ended")["status"], 0);
    assert!(service.get(&format!("/v1/runs/{id}/report"))["pipelines"][0]["out"]["frames"].as_u64() > Some(0));
}

#[test]
fn only_its_owner_and_clients_with_the_token_are_let_in() {
    let bench = Bench::new();
    let token = bench.path("token").display().to_string();
    let by_tcp = Service::start(&bench, &["--listen", "127.0.0.1:0", "--token", &token]);
    let secret = fs::read_to_string(&token).expect("it was made");
    assert_eq!(fs::metadata(&token).expect("it is there").permissions().mode() & 0o777, 0o600);
    let address = by_tcp.address.clone();
    let ask = |host: &str, token: Option<&str>| {
        let stream = TcpStream::connect(&address).expect("it listens");
        exchange(stream, "GET", "/v1/runs", host, token, None)
    };
    let secret = secret.trim();
    assert_eq!(ask("localhost", Some(secret)).status, 200);
    let wrong = format!("{}x", &secret[1..]);
    for token in [None, Some(""), Some("x"), Some(&*wrong), Some(&secret[1..])] {
        let answer = ask("localhost", token);
        assert_eq!(answer.status, 401, "{token:?}");
        assert!(answer.head.contains("www-authenticate: Bearer") && answer.error().contains("token"));
    }
    assert_eq!(ask("evil.example", Some(secret)).status, 421, "a name that another site pointed here");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let refused = bench.run(["serve", "--listen", "127.0.0.1:0", "--token", &token]);
    assert!(refused.status == Some(2) && refused.stderr.contains("chmod 600"), "{}", refused.stderr);
    for (place, remedy) in [("missing/token", "make its folder first"), ("", "name a file in it")] {
        let refused =
            bench.run(["serve", "--listen", "127.0.0.1:0", "--token", &bench.path(place).display().to_string()]);
        assert!(refused.status == Some(2) && refused.stderr.contains(remedy), "{place}: {}", refused.stderr);
    }

    let service = Service::start(&bench, &[]);
    assert_eq!(fs::metadata(&service.socket).expect("it is there").permissions().mode() & 0o777, 0o600);
    // Let everyone reach the socket: the service must still refuse the peer.
    fs::set_permissions(&service.socket, fs::Permissions::from_mode(0o666)).expect("it is ours");
    fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let script = format!(
        "curl -s -o /dev/null -w '%{{http_code}}' --unix-socket {} http://localhost/v1/runs",
        service.socket.display()
    );
    let other = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script])
        .output();
    match other {
        Ok(output) if output.status.success() => assert_eq!(String::from_utf8_lossy(&output.stdout), "403"),
        other => println!("SKIP: no other user can be had: {other:?}"),
    }
}

#[test]
fn clients_that_stall_hold_up_no_end_and_a_signal_leaves_nothing() {
    let bench = Bench::new();
    let mut service = Service::start(&bench, &[]);
    let stalled: Vec<UnixStream> = (0..10)
        .map(|i| {
            let mut stream = UnixStream::connect(&service.socket).expect("it listens");
            // One client does not even finish its request.
            let end = if i == 0 { "" } else { "\r\n" };
            stream
                .write_all(format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{end}").as_bytes())
                .expect("it reads");
            stream
        })
        .collect();
    let id = service.post(&long());
    service.wait_until(id, "running");
    let folders = || bench.files().into_iter().filter(|name| name.starts_with("netlathe-serve-")).collect::<Vec<_>>();
    let folder = bench.path(&folders()[0]);
    assert_eq!(fs::metadata(&folder).expect("it is there").permissions().mode() & 0o777, 0o700);
    assert_eq!(processes_with(&folder), 1, "the run");
    // Produce a second of events that the clients do not read.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(service.end("TERM"), Some(0));
    assert_eq!(processes_with(&folder), 0);
    assert!(!service.socket.exists() && folders().is_empty(), "{:?}", bench.files());
    drop(stalled);
}

#[test]
fn runs_end_with_a_service_that_is_killed_and_its_socket_is_replaced() {
    let bench = Bench::new();
    let mut service = Service::start(&bench, &[]);
    let id = service.post(&long());
    service.wait_until(id, "running");
    let name = bench.files().into_iter().find(|name| name.starts_with("netlathe-serve-")).expect("a folder");
    let folder = bench.path(&name);
    assert_eq!(service.end("KILL"), None);
    wait_for("the end of the run", || processes_with(&folder) == 0);
    assert!(service.socket.exists());
    assert!(folder.join("lock").exists());
    let again = Service::start(&bench, &[]);
    assert_eq!(again.get("/v1/runs")["runs"], json!([]));
    assert!(!folder.exists(), "the next service removes the folder of a killed one");
    let other = bench.run(["serve", "--listen", &format!("unix:{}", again.socket.display())]);
    assert!(other.status == Some(2) && other.stderr.contains("another service uses it"), "{}", other.stderr);
}

/// A run is stopped by Ctrl-Z, SIGSTOP or the freezer: the others are still listed, and all end with the service.
#[test]
fn a_stopped_run_holds_up_neither_lists_nor_the_end() {
    let bench = Bench::new();
    let mut service = Service::start(&bench, &[]);
    let (stopped, other) = (service.post(&long()), service.post(&long()));
    service.wait_until(stopped, "running");
    service.wait_until(other, "running");
    let name = bench.files().into_iter().find(|name| name.starts_with("netlathe-serve-")).expect("a folder");
    let scenario = bench.path(&name).join(format!("{stopped}.toml"));
    let is_run = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == scenario.as_os_str().as_encoded_bytes())
    };
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let process = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_run).expect("the run");
    kill(process, "STOP");
    let runs = service.get("/v1/runs")["runs"].clone();
    assert_eq!(runs.as_array().map(Vec::len), Some(2), "{runs}");
    assert_eq!(service.ask("DELETE", &format!("/v1/runs/{stopped}"), None).status, 202);
    let ended = service.wait_until(stopped, "ended");
    assert_eq!(ended["status"], 0, "it ended by itself: {ended}");
    assert_eq!(service.end("TERM"), Some(0));
    wait_for("the end of the runs", || processes_with(&bench.path(&name)) == 0);
}

#[test]
fn a_run_with_a_socket_is_shown_watched_and_stopped() {
    let bench = Bench::new();
    let mut run = Service::of_run(&bench, &long());
    run.wait_until(1, "running");
    let ctl = |words: &[&str]| bench.run([&["ctl", "--socket", "run.sock"], words].concat());
    let shown = ctl(&["show"]);
    assert!(shown.status == Some(0) && shown.stdout.starts_with("run 1: run, running, "), "{shown:?}");
    let shown: Value = serde_json::from_str(&ctl(&["show", "--json"]).stdout).expect("JSON");
    assert!(shown["run"]["figures"]["virtual_ns"].is_u64() && shown["settings"] == json!([]), "{shown}");
    let refused = ctl(&["set", "down.rate", "5Gbps", "--at", "10s"]);
    assert!(refused.status == Some(2) && refused.stderr.contains("write a timeline"), "{refused:?}");
    assert_eq!(run.ask("POST", "/v1/runs", Some(("application/toml", SHORT))).status, 409);
    let watch = bench.command(["ctl", "--socket", "run.sock", "watch", "--json"]).stdout(Stdio::piped()).spawn();
    let mut watch = watch.expect("the binary runs");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let of_kind = |line: &str, kind: &str| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        (event["event"] == kind).then(|| event["data"].clone())
    };
    lines.by_ref().find_map(|line| of_kind(&line, "progress")).expect("it goes on");
    let stopped = ctl(&["stop"]);
    assert!(stopped.status == Some(0) && stopped.stdout.contains("was asked to end"), "{stopped:?}");
    let end = lines.by_ref().find_map(|line| of_kind(&line, "end")).expect("its end");
    assert!(watch.wait().expect("it ends with the run").success());
    let mut report = String::new();
    run.process.stdout.take().expect("a pipe").read_to_string(&mut report).expect("text");
    let report: Value = serde_json::from_str(&report).expect("the report");
    assert!(run.process.wait().expect("it ends").success());
    assert_eq!(end["figures"]["pipelines"][0]["out"], report["pipelines"][0]["out"]);
    assert!(!run.socket.exists(), "it goes with the run");
    let gone = ctl(&["show"]);
    assert!(gone.status == Some(2) && gone.stderr.contains("use --socket to name"), "{gone:?}");
    let tcp = bench.run(["run", "run.toml", "--control", ":80"]);
    assert!(tcp.status == Some(2) && tcp.stderr.contains("unix:PATH"), "{tcp:?}");
}

/// `NETLATHE_UPDATE=1` rewrites the file.
#[test]
fn the_shipped_description_is_the_one_that_is_served() {
    let bench = Bench::new();
    let service = Service::start(&bench, &[]);
    let answer = service.ask("GET", "/openapi.json", None);
    let path = crate::typed::root().join("docs/reference/openapi.json");
    if std::env::var_os("NETLATHE_UPDATE").is_some() {
        fs::write(&path, &answer.body).expect("a file");
    }
    let shipped = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        shipped == answer.body,
        "NETLATHE_UPDATE=1 cargo test -p netlathe-cli --test suite service:: writes {path:?}"
    );
}

#[test]
fn top_wants_a_terminal_and_restores_it() {
    let bench = Bench::new();
    let run = Service::of_run(&bench, &long());
    run.wait_until(1, "running");
    let refused = bench.run(["top", "--socket", "run.sock"]);
    assert!(refused.status == Some(2) && refused.stderr.contains("netlathe ctl watch"), "{refused:?}");
    let Some((status, screen)) = on_terminal(&bench, "netlathe top --socket run.sock") else { return };
    assert_eq!(status, Some(0), "{screen}");
    assert!(screen.contains("down") && screen.contains("running"), "{screen:?}");
    // The alternate screen is left, and the cursor is shown.
    assert!(screen.contains("\u{1b}[?1049l") && screen.contains("\u{1b}[?25h"), "{screen:?}");
}

/// Runs a command on a terminal and types `q` after a second. Returns its status and what it drew.
fn on_terminal(bench: &Bench, line: &str) -> Option<(Option<i32>, String)> {
    let mut script = Command::new("script");
    script
        .args(["-qec", &format!("stty rows 24 cols 140; exec {line}"), "/dev/null"])
        .current_dir(bench.path(""))
        .env("PATH", crate::typed::search_path());
    script.env("XDG_RUNTIME_DIR", bench.path("")).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut process) = script.spawn() else {
        println!("SKIP: there is no script(1)");
        return None;
    };
    let mut keys = process.stdin.take().expect("a pipe");
    thread::sleep(Duration::from_secs(2));
    keys.write_all(b"q").expect("it reads");
    let output = process.wait_with_output().expect("it ends");
    Some((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Every command line about services that a reader sees.
#[test]
fn examples_of_services_run() {
    let bench = Bench::new();
    let blocks = crate::typed::all();
    let steps: Vec<&Step> =
        blocks.iter().flat_map(|block| &block.steps).filter(|step| step.rule == Some(Rule::Service)).collect();
    assert!(steps.len() > 10, "{steps:#?}");
    fs::create_dir(bench.path("data")).expect("a folder");
    let folder = bench.path("").display().to_string();
    let here =
        |typed: &str| typed.replace("/tmp/", &folder).replace("/data", &bench.path("data").display().to_string());
    let of = |command: &str| {
        steps.iter().filter(|step| step.typed.starts_with(command)).map(|step| here(&step.typed)).collect::<Vec<_>>()
    };
    for line in of("netlathe serve") {
        let mut command = crate::typed::bash(&bench.path(""));
        let mut service =
            Service::of(command.arg(format!("exec {}", line.trim_end_matches('&'))), &bench, PathBuf::new());
        service.listens();
        assert_eq!(service.end("INT"), Some(0), "{line}");
    }
    let run = |line: &str, seconds: u32| {
        let mut bash = crate::typed::bash(&bench.path(""));
        bash.env("XDG_RUNTIME_DIR", bench.path("")).current_dir(bench.path(""));
        let output = bash.arg(format!("set -o pipefail; timeout {seconds} {line}")).output().expect("bash");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), text)
    };
    let _service = Service::start(&bench, &["--listen", &format!("unix:{folder}netlathe.sock")]);
    let scenario = long();
    let controlled = Service::of_run(&bench, &scenario);
    controlled.wait_until(1, "running");
    for line in of("curl ") {
        let (status, text) = run(&line, 3);
        // A stream of events never ends, so `timeout` stops it.
        let is_stream = line.contains("/v1/events") && status == Some(124);
        assert!((status == Some(0) || is_stream) && !text.contains("\"error\""), "{line}: {text}");
    }
    let mut lines = of("netlathe ctl");
    lines.sort_by_key(|line| line.contains(" stop"));
    // A run can be stopped only once.
    lines.dedup();
    for line in lines {
        let (status, text) = run(&line, 3);
        let endless = line.contains(" watch") && status == Some(124);
        // Runs in virtual time are too fast to be changed by hand.
        let refused = line.contains(" set ") && text.contains("nothing in this run can be changed")
            || line.contains("--start-at") && text.contains("start-at: the scenario has no live port");
        assert!(status == Some(0) || endless || refused, "{line}: {text}");
    }
    for line in of("netlathe top").into_iter().filter(|line| !line.contains("run.sock")) {
        let Some((status, screen)) = on_terminal(&bench, &line) else { return };
        assert_eq!(status, Some(0), "{line}: {screen}");
    }
}
