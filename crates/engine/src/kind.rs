/// Description of a kind of stage, law or waveform for help and docs.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The word that selects it.
    pub name: &'static str,
    /// Its syntax: for a stage, what follows the name; for a law, without the options common to all laws.
    pub grammar: &'static str,
    /// One line of help.
    pub summary: &'static str,
    /// A valid example.
    pub example: &'static str,
}
