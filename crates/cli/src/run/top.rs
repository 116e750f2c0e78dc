use super::ctl;
use crate::options::top::Top;
use crate::output::{self, Failure};
use crate::run::stop::Stop;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use serde::Deserialize;
use service::control::{Figures, PipelineFigures, RunState};
use service::{Client, ClientError, RunView};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Interval between updates from the service.
const EVERY: Duration = Duration::from_millis(500);
/// Interval between checks of the keyboard.
const KEYS: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
struct RunList {
    runs: Vec<RunView>,
}

impl Top {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Failure::new("top: standard output is not a terminal: use netlathe ctl watch"));
        }
        let socket = self.socket.path();
        let client = ctl::connect(&socket)?;
        // Before the screen is taken over, so that an error stays visible.
        let first = fetch_runs(&client).map_err(|error| ctl::failure(&socket, &error))?;
        let stop = Stop::on_signals()?;
        // This also restores the terminal after a panic.
        let mut terminal =
            ratatui::try_init().map_err(|cause| Failure::new(format!("top: {cause}: try another terminal")))?;
        let shown = show(&mut terminal, &client, first, &stop);
        ratatui::restore();
        match shown {
            Ok(Over::ByUser) => Ok(ExitCode::SUCCESS),
            Ok(Over::Gone(error)) => {
                output::note(format_args!("the service has ended: {error}"));
                Ok(ExitCode::SUCCESS)
            }
            Err(cause) => Err(Failure::new(format!("top: {cause}"))),
        }
    }
}

/// Why the display ended.
enum Over {
    ByUser,
    Gone(ClientError),
}

fn fetch_runs(client: &Client) -> Result<Vec<RunView>, ClientError> {
    Ok(client.get::<RunList>("/v1/runs")?.runs)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    client: &Client,
    first: Vec<RunView>,
    stop: &Stop,
) -> io::Result<Over> {
    let mut before: BTreeMap<u64, Figures> = BTreeMap::new();
    let mut runs = with_rates(first, &mut before);
    let mut looked = Instant::now();
    loop {
        terminal.draw(|frame| draw(frame, &runs))?;
        while event::poll(KEYS)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let interrupts = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                    if interrupts || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc) {
                        return Ok(Over::ByUser);
                    }
                }
                Event::Resize(..) => break,
                _ => {}
            }
        }
        if stop.asked() {
            return Ok(Over::ByUser);
        }
        if looked.elapsed() >= EVERY {
            looked = Instant::now();
            match fetch_runs(client) {
                Ok(found) => runs = with_rates(found, &mut before),
                Err(error) => return Ok(Over::Gone(error)),
            }
        }
    }
}

/// Adds to the runs their rates since the previous update.
fn with_rates(mut runs: Vec<RunView>, before: &mut BTreeMap<u64, Figures>) -> Vec<RunView> {
    for run in &mut runs {
        if let Some(before) = before.get(&run.id) {
            run.figures.since(before);
        }
    }
    *before = runs.iter().map(|run| (run.id, run.figures.clone())).collect();
    runs
}

const TITLES: [&str; 11] =
    ["run", "state", "time", "pipeline", "in", "out", "asked", "rate out", "late (max)", "queue", "drops"];

fn draw(frame: &mut Frame<'_>, runs: &[RunView]) {
    let [table, foot] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let rows = runs.iter().flat_map(rows_of);
    let widths = [4, 9, 10, 12, 12, 12, 12, 13, 18, 8, 20].map(Constraint::Max);
    let header = Row::new(TITLES).style(bold);
    frame.render_widget(Table::new(rows, widths).header(header), table);
    let active = runs.iter().filter(|run| run.state != RunState::Ended).count();
    let text = format!("{active} of {} runs active   q: quit", runs.len());
    frame.render_widget(Paragraph::new(Line::from(text)).style(Style::new().add_modifier(Modifier::DIM)), foot);
}

/// One row for each pipeline and return path, or a single row for a run without pipelines.
fn rows_of(run: &RunView) -> Vec<Row<'static>> {
    let passed = output::brief(run.figures.virtual_ns.unwrap_or(run.figures.passed_ns) as f64);
    let head = [run.id.to_string(), run.state.name().to_owned(), passed];
    let mut rows: Vec<Row<'_>> = Vec::new();
    for pipeline in &run.figures.pipelines {
        let first = if rows.is_empty() { head.clone() } else { Default::default() };
        rows.push(row(first, &pipeline.name, pipeline));
        if let Some(back) = &pipeline.back {
            rows.push(row(Default::default(), "  return", back));
        }
    }
    if rows.is_empty() {
        rows.push(Row::new(head.map(Cell::from)));
    }
    rows
}

fn row(head: [String; 3], name: &str, figures: &PipelineFigures) -> Row<'static> {
    let late = figures.lateness.map_or(String::new(), |lateness| {
        format!("{} ({})", output::brief(lateness.p50_ns), output::brief(lateness.max_ns))
    });
    let mut drops: Vec<(&String, &u64)> = figures.drops.iter().filter(|(_, frames)| **frames > 0).collect();
    drops.sort_by(|a, b| b.1.cmp(a.1));
    let drops: Vec<String> =
        drops.iter().map(|(reason, frames)| format!("{reason} {}", output::thousands(**frames))).collect();
    let cells = [
        output::shown(name).into_owned(),
        output::thousands(figures.arrived.frames),
        output::thousands(figures.left.frames),
        figures.asked.as_deref().map(|asked| output::shown(asked).into_owned()).unwrap_or_default(),
        figures.rate.map(|rate| output::bits(output::digits(rate.left.bps, 4))).unwrap_or_default(),
        late,
        output::thousands(figures.held),
        drops.join(", "),
    ];
    Row::new(head.into_iter().chain(cells).map(Cell::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn draws_every_pipeline_with_its_rate_and_the_reasons_of_its_drops() {
        let mut pipeline = PipelineFigures { name: "down".to_owned(), held: 17, ..PipelineFigures::default() };
        pipeline.asked = Some("2Mbps".to_owned());
        pipeline.left.bytes = 1_000_000;
        pipeline.drops.insert("loss".to_owned(), 1234);
        let mut run = RunView { id: 3, state: RunState::Running, ..RunView::default() };
        run.figures = Figures { passed_ns: 1_000_000_000, virtual_ns: None, pipelines: vec![pipeline] };
        let mut before = BTreeMap::new();
        with_rates(vec![run.clone()], &mut before);
        run.figures.passed_ns += 1_000_000_000;
        run.figures.pipelines[0].left.bytes += 125_000;
        let runs = with_rates(vec![run], &mut before);
        let mut terminal = Terminal::new(TestBackend::new(150, 5)).expect("a screen");
        terminal.draw(|frame| draw(frame, &runs)).expect("it is drawn");
        let screen = terminal.backend().to_string();
        for text in ["down", "running", "2Mbps", "1 Mbit/s", "17", "loss 1", "1 of 1 runs active"] {
            assert!(screen.contains(text), "{text} is not on\n{screen}");
        }
    }
}
