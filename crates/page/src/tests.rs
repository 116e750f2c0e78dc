use super::{PageHeader, Verdict, html};
use measure::{
    AnswersReport, BufferReport, Contended, DepartureMeter, DepthReport, DropReason, FitReport, FrameCounters,
    LimitReport, LimitWindow, LimitedUser, PipelineReport, ProgramEnd, ProgramReport, Report, SourceReport, Tally,
    UserTable,
};
use units::{FrameLen, Span, Time};

mod slices;

/// A report of `frames` departures with a target gap of `gap`, each late by `late`.
fn pipeline(frames: u64, gap: Span, late: impl Fn(u64) -> u64) -> PipelineReport {
    let mut meter = DepartureMeter::new(Some(gap), None, Span::from_ms(1));
    let mut books = FrameCounters::default();
    for i in 0..frames {
        let asked = Time::ZERO + gap * i;
        meter.record(asked, asked + Span::from_ns(late(i)), FrameLen::new(500));
        books.arrived.add(FrameLen::new(500));
        books.left.add(FrameLen::new(500));
    }
    PipelineReport { name: "shape".into(), pacer: Some("deadline"), ..meter.report(&books, 0) }
}

fn page(pipelines: Vec<PipelineReport>) -> String {
    let report = Report {
        schema: Report::SCHEMA,
        command: "shape",
        warnings: Vec::new(),
        pipelines,
        end_to_end: None,
        programs: Vec::new(),
        expectations: Vec::new(),
        clocks: Vec::new(),
        caveats: Vec::new(),
    };
    as_read(&html(&report, &PageHeader::default()))
}

/// The page with non-breaking spaces replaced by spaces.
fn as_read(page: &str) -> String {
    page.replace('\u{a0}', " ")
}

/// Checks that every opened element is closed, in order.
fn assert_well_formed(page: &str) {
    let mut open = Vec::new();
    let body = page.split_once("</style>").expect("a style").1;
    for part in body.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("<{part} is not closed"));
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.to_owned()), "</{name}>");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap_or_default().to_owned());
        }
    }
    // The style and the opening tags of the head are not part of the checked text.
    assert!(open.is_empty(), "{open:?} are open at the end");
}

/// Restores the elements that `</head>`, `</body>` and `</html>` close, which were cut off with the style.
fn checked(page: &str) -> &str {
    let whole = page.replacen("</style>", "</style><html><head>", 1);
    assert_well_formed(&whole);
    for outside in ["http:", "https:", "src=", "<link", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "the page refers to something outside by {outside}");
    }
    for wrong in ["NaN", "inf", "null"] {
        assert!(!page.contains(&format!(">{wrong}")) && !page.contains(&format!("{wrong},")), "{wrong} is drawn");
    }
    page
}

#[test]
fn runs_of_any_length_make_a_page() {
    for frames in [0, 1, 2, 3, 40, 5_000] {
        for gap in [Span::from_ps(800), Span::from_us(10), Span::from_ms(86_400_000 / 4)] {
            let text = page(vec![pipeline(frames, gap, |i| i % 7 * 100)]);
            checked(&text);
            assert_eq!(text.contains("No gap: fewer than two frames left."), frames < 2, "{frames}");
            assert!(text.contains("Every frame is accounted for."));
            assert!(!text.contains(">0.5</text>") || frames > 3, "half a departure cannot occur");
        }
    }
    checked(&page(Vec::new()));
}

#[test]
fn every_drawing_has_a_text_and_a_table() {
    let text = page(vec![pipeline(5_000, Span::from_us(10), |i| i % 7 * 100)]);
    let count = |what: &str| text.matches(what).count();
    assert_eq!(
        count("<figure class=\"card\"><figcaption><h3>"),
        5,
        "HTML has a caption at the beginning or end of its figure"
    );
    assert_eq!((count("<svg "), count("<desc "), count("<figure "), count("The data</summary>")), (5, 5, 5, 5));
    for id in text.split("aria-labelledby=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert_eq!(count(&format!(" id=\"{id}\"")), 1, "{id}");
    }
}

#[test]
fn drawings_match_the_measurements() {
    // One departure in ten is 1 µs late: 20 % of the gaps are off by 1 µs, 10 % too long, 10 % too short.
    let text = page(vec![pipeline(10_001, Span::from_us(10), |i| if i % 10 == 5 { 1_000 } else { 0 })]);
    assert!(text.contains("<td>80.00 %</td>"), "the share of gaps as asked");
    assert!(text.contains("<tr><th scope=\"row\">1 ns</th><td>9 001</td></tr>"), "departures in time");
    assert!(text.contains("<tr><th scope=\"row\">1 µs</th><td>1 000</td></tr>"), "late departures");
    assert!(text.contains("got and asked are at most 10.00 % apart"), "the distribution against the ask");
}

#[test]
fn planned_departures_are_drawn_as_planned() {
    let mut report = pipeline(10_001, Span::from_us(10), |_| 0);
    report.plots.as_mut().expect("drawings").planned = true;
    let text = page(vec![report]);
    assert!(text.contains("</span>planned<span") && !text.contains("</span>got"), "{text}");
    assert!(text.contains("Shares planned and asked are at most") && text.contains("<th scope=\"col\">planned</th>"));
    assert!(!text.contains("<th scope=\"col\">got</th><th scope=\"col\">asked"), "{text}");
}

#[test]
fn gaps_against_a_law_are_shown_with_their_fit() {
    let fit = FitReport {
        distribution: "uniform 80us..120us".into(),
        count: 4_000,
        sampled_from: Some(5_000),
        ks_d: Some(0.0125),
        ks_critical_05: Some(0.0215),
        ks_p: Some(0.5647),
        mse: 1.25e-6,
        bins: 102,
        outside_ratio: 0.25,
        lag1: -0.0123,
        law_mean_ns: Some(100_000.0),
        ..FitReport::default()
    };
    let report = PipelineReport { fit: Some(fit), ..pipeline(5_001, Span::from_us(100), |_| 0) };
    let text = page(vec![report]);
    for wanted in [
        "4 000 gaps, drawn from 5 000, against uniform 80us..120us",
        "Kolmogorov–Smirnov D</th><td>0.012500</td>",
        "probability of this D or a larger one</th><td>0.5647</td>",
        "in 102 bins</th><td>1.25e-6</td>",
        "divergence</th><td>without bound</td>",
        "where the law has none</th><td>25.00 %</td>",
        "mean of the law</th><td>100 µs</td>",
        "deviation of the gaps</th><td>0 ns</td>",
    ] {
        assert!(checked(&text).contains(wanted), "no {wanted}");
    }
}

#[test]
fn shows_answered_requests_below_the_books() {
    let mut answers =
        AnswersReport { arrived: Tally { frames: 7, bytes: 448 }, ignored: 3, ..AnswersReport::default() };
    answers.answered.arp = 4;
    let report = |answers| PipelineReport { answers: Some(answers), ..pipeline(10, Span::from_us(10), |_| 0) };
    let told = "Of 7 frames that arrived on the port, 4 ARP, 0 neighbour and 0 echo requests were answered";
    assert!(page(vec![report(answers)]).contains(told));
    assert!(!page(vec![report(AnswersReport::default())]).contains("arrived on the port"));
}

#[test]
fn a_wide_table_is_whole_on_paper() {
    let paper = super::STYLE.split("@media print").nth(1).expect("a style for paper");
    assert!(paper.contains(".wide { overflow: visible; }"), "paper cannot scroll: {paper}");
    // A figure must not break across lines.
    assert!(!paper.contains("td { overflow-wrap") && !paper.contains("8px; overflow-wrap"), "{paper}");
}

#[test]
fn one_window_is_no_range() {
    let windows = |frames| page(vec![pipeline(frames, Span::from_us(10), |_| 0)]);
    assert!(windows(150).contains("400 Mbit/s in one window of 1 ms"), "{}", windows(150));
    assert!(windows(250).contains("400 Mbit/s to 400 Mbit/s"));
}

#[test]
fn compares_nothing_without_a_target() {
    let mut report = pipeline(5_000, Span::from_us(10), |_| 0);
    report.forget_ask();
    report.pacer = Some("none");
    let text = page(vec![report]);
    checked(&text);
    assert!(!text.contains("asked</p>") && !text.contains("Conformance</h3>") && !text.contains("Lateness</h3>"));
    assert!(text.contains("Gaps</h3>") && text.contains("Rate over time</h3>"));
    // Stages that hold frames determine their departures.
    let mut report = pipeline(5_000, Span::from_us(10), |_| 0);
    report.add_effects(&measure::Effects::default(), &delays([Span::from_ms(10)]));
    report.forget_ask();
    report.pacer = Some("none");
    let text = page(vec![report]);
    assert!(text.contains("Lateness</h3>") && text.contains("Delays</h3>"));
    assert!(text.contains("<td>10 ms</td><td>10 ms</td>"), "asked and got are side by side");
}

/// A meter of frames that left at the end of these delays.
fn delays(asked: impl IntoIterator<Item = Span>) -> measure::HeldMeter {
    let mut meter = measure::HeldMeter::default();
    for asked in asked {
        meter.departed(measure::Held { asked, waited: Span::ZERO }, units::Time::ZERO, units::Time::ZERO);
    }
    meter
}

#[test]
fn books_are_shown_and_judged() {
    let mut report = pipeline(100, Span::from_us(10), |_| 0);
    let mut books = FrameCounters::default();
    books.drop_many(DropReason::Pool, 7);
    report.drops = books.drops();
    let text = page(vec![report.clone()]);
    assert!(text.contains("pool (no buffer was free to hold the frame)"));
    assert!(text.contains("100 frames were received or generated, 107 are accounted for."));
    report.copies = 9;
    report.held = 2;
    let text = page(vec![report]);
    assert!(text.contains("of 100 in, 7 dropped, 2 held at the end") && text.contains("key held\"></span>held"));
    assert!(checked(&text).contains("Every frame is accounted for."));
}

#[test]
fn names_and_commands_are_text() {
    let mut report = pipeline(3, Span::from_us(10), |_| 0);
    report.name = "<script>alert(1)</script>".into();
    let verdicts = vec![
        Verdict { expected: "a < b".into(), missed: None },
        Verdict { expected: "c > d".into(), missed: Some("it is <1>".into()) },
    ];
    let about = PageHeader { command_line: "netlathe shape --name '<b>'".into(), verdicts, ..PageHeader::default() };
    let report = Report {
        schema: Report::SCHEMA,
        command: "run",
        warnings: vec!["a <gap>".into()],
        pipelines: vec![report.clone(), report],
        end_to_end: None,
        programs: Vec::new(),
        expectations: Vec::new(),
        clocks: Vec::new(),
        caveats: Vec::new(),
    };
    let text = html(&report, &about);
    assert_eq!(
        checked(&text).matches("&lt;script&gt;").count(),
        8,
        "each in the list, in the verdict, as heading and among the figures"
    );
    assert!(text.contains("a &lt; b</code> <span class=\"verdict good\">met") && text.contains("it is &lt;1&gt;"));
    let (warned, first) = (text.find("a &lt;gap&gt;").expect("a warning"), text.find("id=\"p0\"").expect("a section"));
    assert!(warned < first, "warnings stand on top");
}

#[test]
fn programs_are_shown_with_their_end_and_what_they_printed() {
    let web = ProgramReport {
        name: "web".into(),
        command: vec!["python3".into(), "-m".into(), "<http>".into()],
        namespace: Some("server".into()),
        end: ProgramEnd::WithTheRun,
        start_ns: Some(2e9),
        ready_ns: Some(0.5e9),
        stdout_bytes: 100_000,
        stdout: "GET / <200>".into(),
        ..ProgramReport::default()
    };
    let get = ProgramReport { name: "get".into(), end: ProgramEnd::ByItself, status: Some(7), ..web.clone() };
    let late = ProgramReport { name: "late".into(), ..ProgramReport::default() };
    let report = Report {
        schema: Report::SCHEMA,
        command: "run",
        warnings: Vec::new(),
        pipelines: vec![pipeline(100, Span::from_us(10), |_| 0)],
        end_to_end: None,
        programs: vec![web, get, late],
        expectations: Vec::new(),
        clocks: Vec::new(),
        caveats: Vec::new(),
    };
    let text = as_read(&html(&report, &PageHeader::default()));
    let section = checked(&text).split_once("id=\"programs\"").expect("a section").1;
    for shown in ["with the run", "status 7", "not started", "500 ms", "python3 -m &lt;http&gt;", "GET / &lt;200&gt;"] {
        assert!(section.contains(shown), "{shown} is not in {section}");
    }
    assert!(section.contains("web: standard output, 100000 B, its end"), "{section}");
    assert!(!page(vec![pipeline(100, Span::from_us(10), |_| 0)]).contains("id=\"programs\""));
}

#[test]
fn impairments_are_shown_asked_and_got_with_their_direction() {
    let mut effects = measure::Effects::default();
    effects.asks_delays((0..1_000).map(|i| 1_000_000_000 + i * 1_000_000));
    for i in 0..2_000_u64 {
        effects.chose(measure::Choice::Loss, 0.2, i % 4 == 0);
    }
    let held = delays((0..2_000).map(|i| Span::from_ns(1_000_000 + i % 1_000 * 1_000)));
    let mut backward = pipeline(2_000, Span::from_us(10), |_| 0);
    backward.name = "backward".into();
    backward.add_effects(&effects, &held);
    let text = page(vec![pipeline(40, Span::from_us(10), |_| 0), backward]);
    checked(&text);
    assert_eq!(text.matches("<h3>Impairments</h3>").count(), 1, "the other direction is untouched");
    assert!(text.contains("Direction backward") && text.contains("20.00 %") && text.contains("25.00 %"));
    assert!(text.contains("p1-delays") && text.contains("500 of 2 000"));
    // There are one thousand asked quantiles and two thousand measured delays: the table scales them to the same
    // number.
    let delays = text.split("p1-delays").last().and_then(|rest| rest.split("</table>").next()).expect("a table");
    let cells = |row: &str| -> Vec<f64> {
        let cells = row.split("<td>").skip(1).filter_map(|cell| cell.split("</td>").next());
        cells.map(|cell| cell.replace(' ', "").parse().expect("a count")).collect()
    };
    let rows: Vec<Vec<f64>> = delays.split("<tr>").skip(2).map(cells).collect();
    assert!(rows.len() > 10 && rows.iter().all(|row| (row[0] - row[1]).abs() <= 2.0), "{rows:?}");
}

#[test]
fn shows_impairments_of_each_class_with_its_spec() {
    let class = |name: &str, asked, every| {
        let mut effects = measure::Effects::default();
        (0..2_000_u64).for_each(|i| effects.chose(measure::Choice::Loss, asked, i % every == 0));
        let mut class = PipelineReport { name: name.into(), ..pipeline(40, Span::from_us(10), |_| 0) };
        class.add_effects(&effects, &measure::HeldMeter::default());
        class
    };
    let mut report = pipeline(40, Span::from_us(10), |_| 0);
    report.classes = vec![class("web", 0.2, 4), class("default", 0.01, 80), pipeline(40, Span::from_us(10), |_| 0)];
    let text = page(vec![report]);
    let rows = checked(&text).split("Impairments of each class").nth(1).expect("a table of them");
    assert!(rows.contains("web: loss</th><td>20.00 %</td><td>25.00 %</td><td>500 of 2 000</td>"), "{rows}");
    assert!(rows.contains("default: loss</th><td>1.00 %</td><td>1.25 %</td><td>25 of 2 000</td>"), "{rows}");
}

#[test]
fn classes_and_sources_have_tables_and_drawings_of_their_own() {
    let class = |name: &str, frames| PipelineReport { name: name.into(), ..pipeline(frames, Span::from_us(10), |_| 0) };
    let mut report = pipeline(300, Span::from_us(10), |_| 0);
    report.classes = vec![class("api", 200), class("quiet", 0), class("<rest>", 100)];
    report.classes[0].rule = Some("tcp dport 80".into());
    report.classes[0].contended = Some(Contended { frames: 17, max_ns: 1_200.0 });
    report.depth = Some(DepthReport { max_frames: 4_321 });
    report.buffer = Some(BufferReport { asked_ns: 5e6, width_ns: 7e6, enough: false });
    let mut source = SourceReport { source: "10.0.0.1".into(), crests: 7, missed: 2, ..SourceReport::default() };
    source.overlap.in_ns = 6_855_000.0;
    report.sources = vec![source];
    let text = page(vec![report]);
    checked(&text);
    assert!(text.contains("<th scope=\"row\">api</th><td>tcp dport 80</td><td>200</td><td>200</td>"));
    assert!(text.contains("17, up to 1.2 µs") && text.contains("<td>all that is left</td>"));
    assert!(text.contains("<th scope=\"row\">10.0.0.1</th><td>0</td><td>0</td><td>7</td><td>2</td>"));
    assert!(text.contains("6.855 ms") && text.contains("4 321") && text.contains("buffer 5 ms: too little"));
    assert!(text.contains("<th scope=\"row\">classes.api.contended.frames</th><td>17</td>"));
    // A class that sent nothing has no drawing.
    assert!(text.contains("api: drawings") && !text.contains("quiet: drawings"));
    for id in text.split("aria-labelledby=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert_eq!(text.matches(&format!(" id=\"{id}\"")).count(), 1, "{id}");
    }
}

#[test]
fn mentions_classes_that_are_not_drawn() {
    let with = |classes| {
        let mut report = pipeline(300, Span::from_us(10), |_| 0);
        report.classes = vec![pipeline(10, Span::from_us(10), |_| 0); classes];
        page(vec![report])
    };
    assert_eq!(with(16).matches(": drawings</summary>").count(), 16);
    assert!(!with(16).contains("Only the first"));
    assert_eq!(with(17).matches(": drawings</summary>").count(), 16);
    assert!(with(17).contains("Only the first 16 classes that sent anything are drawn"));
}

#[test]
fn limit_shows_the_rates_of_users() {
    let window = LimitWindow {
        windows: 1_672,
        min_ratio: 0.2368,
        p50_ratio: 0.5366,
        max_ratio: 1.25,
        p99_error_ratio: 0.7057,
        worst_error_ratio: 0.7632,
        one_frame_ratio: 0.4,
    };
    let user =
        LimitedUser { user: "10.0.0.<1>".into(), rate_bps: 2_000_000, passed_bytes: 7_414, exceeded_bytes: 3_936 };
    let limit = LimitReport {
        key: "src-ip".into(),
        rate_bps: 2_000_000,
        burst_bytes: 3_036,
        mode: "police",
        algorithm: "gcra".into(),
        conforming: Tally { frames: 14_400, bytes: 1_481_792 },
        exceeding: Tally { frames: 5_600, bytes: 788_208 },
        users: UserTable { capacity: 1_048_576, present: 1, created: 1, refused: 17, ..UserTable::default() },
        error: [("100ms", window)].into(),
        talkers: vec![user],
        ..LimitReport::default()
    };
    let report = |limit| PipelineReport { limit: Some(limit), ..pipeline(10, Span::from_us(10), |_| 0) };
    let text = page(vec![report(limit.clone())]);
    for wanted in [
        "2 Mbit/s with a burst of 3 036 B for each src-ip, police, gcra",
        "beyond it</th><td>5 600</td><td>788 208</td>",
        "1 user added, 0 removed to make room, 1 present at the end; capacity 1 048 576; 17 frames without room.",
        "100ms</th><td>23.68 %</td><td>53.66 %</td><td>125 %</td><td>70.57 %</td><td>76.32 %</td><td>40 %</td><td>1 672</td>",
        "10.0.0.&lt;1&gt;</th><td>2 Mbit/s</td><td>7 414</td><td>3 936</td>",
    ] {
        assert!(checked(&text).contains(wanted), "no {wanted}");
    }
    let text = page(vec![report(LimitReport { error: [].into(), talkers: Vec::new(), ..limit })]);
    assert!(text.contains("No user was limited for two consecutive windows") && !text.contains("most traffic"));
}
