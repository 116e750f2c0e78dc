/// Describe a command, or list stages, laws, waves, ports, rules, fields, layers, keys or figures
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe help emulate
  netlathe help stages
  netlathe help stages delay
  netlathe help figures gap.error

Lists:
  stages    what emulate and --stage do to frames
  laws      distributions of gaps, delays and sizes
  waves     rates that change over time
  ports     what --in and --out accept
  rules     conditions of a class
  fields    keys of a stream
  layers    protocols and their fields, for --rewrite
  keys      keys of a scenario
  figures   paths into the report, with their meanings, for --expect

netlathe help report-schema prints the JSON schema of reports.")]
pub(crate) struct Help {
    /// A command, or a list and a name in it
    #[arg(value_name = "COMMAND|LIST")]
    pub(crate) topic: Vec<String>,
}
