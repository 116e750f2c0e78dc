use std::path::PathBuf;

/// Merge the reports of several hosts into one
#[derive(clap::Args)]
#[command(override_usage = "netlathe merge <[NAME=]REPORT>... [OPTIONS]")]
#[command(after_help = "\
Examples:
  netlathe merge a.json b.json
  netlathe merge left=run1/report.json right=run2/report.json --json
  netlathe merge a.json b.json --offset a=12.5us --offset b=-40us
  netlathe merge a.json b.json --page all.html

Reports are those of --json, of one command and schema 2. Counters add up; means and deviations are those
of all values; quantiles are computed anew from the added histograms, which runs write with --histograms.
What the reports do not allow is left out and named. Rates are sums: hosts send at the same time.")]
pub(crate) struct Merge {
    /// A report, and the name of its host [default: the name of the file, or of its folder for report.json]
    #[arg(value_name = "[NAME=]REPORT", required = true)]
    pub(crate) reports: Vec<String>,
    /// The clock of a common reference minus that of the host NAME, to align starts [default: the first peer of
    /// --clock-peer in its report]
    #[arg(long = "offset", value_name = "NAME=TIME", allow_hyphen_values = true)]
    pub(crate) offsets: Vec<String>,
    /// Write an HTML page with the rate of each host over time, one lane below the other, aligned by the starts
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
    /// Print only the merged report on stdout, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A report and the name of its host.
pub(crate) struct Named {
    pub(crate) host: String,
    pub(crate) path: PathBuf,
}
