use schemars::JsonSchema;
use serde::Serialize;

/// The report of a program of a scenario.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct ProgramReport {
    /// The name.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The node of the lab, or the network namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How it ended.
    pub end: ProgramEnd,
    /// Exit status as in a shell, where 128 + n is signal n; only if the program ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Start, after the first frames could pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<f64>,
    /// Time from its start until it was ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_ns: Option<f64>,
    /// Time from its start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<f64>,
    /// Length of its standard output.
    pub stdout_bytes: u64,
    /// Length of its standard error.
    pub stderr_bytes: u64,
    /// The end of the standard output that was kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// The end of the standard error that was kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Standard output and standard error, each up to [`ProgramReport::KEPT`] bytes.
    #[serde(skip)]
    pub kept: [Vec<u8>; 2],
}

/// How a program ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramEnd {
    /// The run ended before it was due to start.
    #[default]
    NotStarted,
    /// By itself.
    ByItself,
    /// The run ended it.
    WithTheRun,
}

impl ProgramReport {
    /// Maximum length of an output that is kept.
    pub const KEPT: usize = 1 << 20;
    /// Maximum length of an output in the report.
    pub const SHOWN: usize = 16 << 10;

    /// Takes over the part of an output that was kept.
    pub fn keep(&mut self, kept: [Vec<u8>; 2]) {
        let end =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(Self::SHOWN)..]).into_owned();
        (self.stdout, self.stderr) = (end(&kept[0]), end(&kept[1]));
        self.kept = kept;
    }
}
