//! Expectations of a run and their verdicts.

use crate::output::{self, Failure};
use measure::{DropReason, ExpectationReport, Named, ProgramEnd, ProgramReport, Report};
use scenario::{Expectation, ExpectedStatus, ProgramPlan};
use serde_json::{Value, json};

/// The verdict of each expectation.
pub(crate) fn judge(report: &Report, expectations: &[Expectation]) -> Result<Vec<ExpectationReport>, Failure> {
    let mut verdicts = Vec::new();
    for expectation in expectations {
        if let Some(program) = report.programs.iter().find(|program| program.name == expectation.path[0]) {
            verdicts.push(of_program(program, expectation)?);
            continue;
        }
        let (name, fields) = expectation.path.split_first().expect("a path has two names at least");
        let pipeline = report.pipelines.iter().find(|pipeline| pipeline.name == *name);
        let mut value = serde_json::to_value(pipeline).map_err(Failure::new)?;
        let mut fields = fields;
        if let Some((class, rest)) = fields.split_first()
            && let Some(classes) = value.get("classes").and_then(Value::as_array)
            && let Some(found) = classes.iter().find(|found| found["name"] == class.as_str())
        {
            (value, fields) = (found.clone(), rest);
        }
        let mut look_up: fn(&[String]) -> Named = measure::named;
        if let [list, number, rest @ ..] = fields
            && list == "segments"
        {
            let segments = value[list.as_str()].as_array().cloned().unwrap_or_default();
            let Some(segment) = number.parse::<usize>().ok().and_then(|number| segments.get(number)) else {
                let why = format!("this run has {}", output::counted(segments.len() as u64, "segment"));
                verdicts.push(ExpectationReport::new(&expectation.text, None, Some(why)));
                continue;
            };
            (value, fields, look_up) = (segment.clone(), rest, measure::named_segment);
        }
        // The unit at the end of a name may be left out.
        let whole = match look_up(fields) {
            Named::Figure(figure) => figure.path.clone(),
            _ => fields.to_vec(),
        };
        for (field, typed) in whole.iter().zip(fields) {
            let field = if field == "*" { typed } else { field };
            value = value.get(field).cloned().unwrap_or(Value::Null);
        }
        // Reports list only reasons that occurred. The count of every other reason is 0.
        if let [part, reason] = fields
            && value.is_null()
            && (part == "skipped" || part == "drops" && DropReason::ALL.iter().any(|known| known.name() == reason))
        {
            value = json!(0);
        }
        let value = value.as_f64();
        let missed = match value {
            Some(value) if expectation.holds(value) => None,
            Some(value) => Some(format!("it is {}", output::figure(value, expectation.unit))),
            None => Some("this run has no such figure".to_owned()),
        };
        verdicts.push(ExpectationReport::new(&expectation.text, value, missed));
    }
    Ok(verdicts)
}

/// The verdict on a figure of a program.
fn of_program(program: &ProgramReport, expectation: &Expectation) -> Result<ExpectationReport, Failure> {
    let found = match expectation.pointer() {
        Some(pointer) => in_output(program, pointer),
        None => {
            let report = serde_json::to_value(program).map_err(Failure::new)?;
            let name = match measure::named_program(&expectation.path[1..]) {
                Named::Figure(figure) => figure.path[0].as_str(),
                _ => "",
            };
            report[name].as_f64().ok_or_else(|| match (program.end, name) {
                (ProgramEnd::NotStarted, _) => "it did not start before the run ended".to_owned(),
                (ProgramEnd::WithTheRun, "status") => "it was still running when the run ended".to_owned(),
                (_, "ready_ns") => "it was not ready, or has no ready".to_owned(),
                _ => "this run has no such figure".to_owned(),
            })
        }
    };
    let (value, missed) = match found {
        Ok(value) if expectation.holds(value) => (Some(value), None),
        Ok(value) => {
            let is_status = expectation.path[1] == "status";
            let why = if is_status { last_words(program) } else { String::new() };
            (Some(value), Some(format!("it is {}{why}", output::figure(value, expectation.unit))))
        }
        Err(why) => (None, Some(why)),
    };
    Ok(ExpectationReport::new(&expectation.text, value, missed))
}

/// The number at a JSON pointer (RFC 6901) in the standard output of a program.
fn in_output(program: &ProgramReport, pointer: &str) -> Result<f64, String> {
    let output = &program.kept[0];
    if program.stdout_bytes > output.len() as u64 {
        let kept = ProgramReport::KEPT >> 20;
        return Err(format!("its output has {} B, of which only {kept} MiB are kept", program.stdout_bytes));
    }
    let json: Value = serde_json::from_slice(output).map_err(|cause| format!("its output is not JSON: {cause}"))?;
    let value = json.pointer(pointer).ok_or_else(|| format!("its output has no {pointer}"))?;
    value.as_f64().ok_or_else(|| format!("it is {value}, which is no number"))
}

/// A colon and the last line of a program's standard error.
fn last_words(program: &ProgramReport) -> String {
    let last = program.stderr.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or(String::new(), |line| format!(": {line}"))
}

/// The verdicts on the statuses of programs that no expectation names.
pub(crate) fn statuses(
    programs: &[ProgramReport],
    plans: &[ProgramPlan],
    named: &[ExpectationReport],
) -> Vec<ExpectationReport> {
    let mut verdicts = Vec::new();
    for (program, plan) in programs.iter().zip(plans) {
        let is_named = named.iter().any(|other| other.that.starts_with(&format!("{}.status ", plan.name)));
        let wanted = match plan.status {
            ExpectedStatus::Exactly(status) => i32::from(status),
            ExpectedStatus::ZeroIfEnded if program.end == ProgramEnd::ByItself && !is_named => 0,
            ExpectedStatus::ZeroIfEnded | ExpectedStatus::Any => continue,
        };
        let missed = match program.status {
            Some(status) if status == wanted => None,
            Some(status) => Some(format!("it is {status}{}", last_words(program))),
            None if program.end == ProgramEnd::NotStarted => Some("it did not start before the run ended".to_owned()),
            None => Some("it was still running when the run ended".to_owned()),
        };
        let that = format!("{}.status == {wanted}", plan.name);
        verdicts.push(ExpectationReport::new(that, program.status.map(f64::from), missed));
    }
    verdicts
}

/// Describes what both ends saw if no frame of the streams reached `--in`; `None` if some did. `pipeline` is a
/// generator's report as JSON.
pub(crate) fn seen_instead(pipeline: &Value) -> Option<String> {
    let streams = pipeline["streams"].as_array()?;
    let none_arrived = |stream: &Value| stream["received"] == 0 && stream["sent"].as_u64() > Some(0);
    let seen = pipeline.pointer("/flow/answers").filter(|_| !streams.is_empty() && streams.iter().all(none_arrived))?;
    let number = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let mut words = match number(seen, "/in/frames") {
        0 => "--in saw no frame at all".to_owned(),
        others => format!("--in received none of them, but {}", output::counted(others, "other frame")),
    };
    let asked = number(seen, "/answered/arp") + number(seen, "/answered/ndp");
    if asked > 0 {
        words += &format!("; it answered {} for the streams' addresses", output::counted(asked, "question"));
    }
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or("?").to_owned();
    for (end, seen) in [("--in", seen), ("--out", &pipeline["answers"])] {
        if let Some(vain) = seen.get("unanswered") {
            let (asker, target) = (text(vain, "asker"), text(vain, "target"));
            let times = output::counted(number(vain, "/requests"), "question");
            words += &format!(
                "; at {end} {asker} asks for {target}, which is not the address of a stream ({times} unanswered)"
            );
        }
        if let Some(refused) = seen.get("refused") {
            let (by, reason) = (text(refused, "by"), text(refused, "reason"));
            words += &format!(
                "; {by} refuses them: {reason} ({} at {end})",
                output::counted(number(refused, "/packets"), "message")
            );
        }
    }
    Some(words)
}

/// The verdict of a receiver, which expects every frame that was sent.
pub(crate) fn expect_all_arrived(report: &Report) -> ExpectationReport {
    let streams = report.pipelines.iter().flat_map(|pipeline| &pipeline.streams);
    let lost: u64 = streams.filter_map(|stream| stream.received.as_ref()).map(|received| received.lost).sum();
    let replays = report.pipelines.iter().filter_map(|pipeline| pipeline.replay.as_ref());
    let (lost, changed) =
        replays.fold((lost, 0), |(lost, changed), replay| (lost + replay.lost, changed + replay.changed));
    let flows = report.pipelines.iter().filter_map(|pipeline| pipeline.flow.as_ref());
    let missed: u64 = flows.map(|flow| flow.kernel_drops).sum();
    let own = if missed > 0 { format!(", up to {missed} of them by the receiver itself") } else { String::new() };
    let dropped: u64 = report.pipelines.iter().map(|pipeline| pipeline.drops.total()).sum();
    let were = |frames: u64, what: String| {
        let were = if frames == 1 { "was" } else { "were" };
        (frames > 0).then(|| format!("{} {were} {what}", output::counted(frames, "frame")))
    };
    let seen = report.pipelines.iter().filter_map(|pipeline| seen_instead(&json!(pipeline))).next();
    let own = seen.map_or(own, |seen| format!(": {seen}"));
    let lacking = (lost + changed + dropped) as f64;
    let (lost, dropped) = (were(lost, format!("lost{own}")), were(dropped, "dropped before departure".to_owned()));
    let changed = were(changed, "changed".to_owned());
    let why: Vec<String> = lost.into_iter().chain(changed).chain(dropped).collect();
    ExpectationReport::new("every frame at --in", Some(lacking), (!why.is_empty()).then(|| why.join(", ")))
}
