/// Description of a kind of stage, law or waveform, for help and documentation.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The keyword that selects it.
    pub name: &'static str,
    /// Its syntax. For a stage: what follows the name. For a law: without the options that all laws share.
    pub grammar: &'static str,
    /// One line of help.
    pub summary: &'static str,
    /// A valid example.
    pub example: &'static str,
}
