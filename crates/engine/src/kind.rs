/// What people may know of a kind of stage, of law or of waveform.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The word that names it.
    pub name: &'static str,
    /// How it is written: of a stage what follows the name, of a law without the options that all laws have.
    pub grammar: &'static str,
    /// One line of help.
    pub summary: &'static str,
    /// A valid text.
    pub example: &'static str,
}
