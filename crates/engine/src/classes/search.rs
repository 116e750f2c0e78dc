use super::term::payload;
use aho_corasick::AhoCorasick;
use packet::layers::Level;

/// Searches payloads for all texts at once (Aho and Corasick 1975).
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// One automaton per packet whose payload is searched, and the number of each of its texts.
    automata: Vec<(Level, AhoCorasick, Vec<usize>)>,
    found: Vec<bool>,
    list: Vec<usize>,
}

impl Search {
    /// A search for these texts, each in the payload of its packet; `None` if there are none.
    pub(super) fn new(texts: &[(Level, Vec<u8>)]) -> Option<Self> {
        let mut levels: Vec<Level> = Vec::new();
        for (level, _) in texts {
            if !levels.contains(level) {
                levels.push(*level);
            }
        }
        let automaton = |level: Level| {
            let numbers: Vec<usize> = (0..texts.len()).filter(|number| texts[*number].0 == level).collect();
            let automaton = AhoCorasick::new(numbers.iter().map(|number| &texts[*number].1)).ok()?;
            Some((level, automaton, numbers))
        };
        let automata = levels.into_iter().map(automaton).collect::<Option<Vec<_>>>()?;
        if automata.is_empty() {
            return None;
        }
        Some(Search { automata, found: vec![false; texts.len()], list: Vec::new() })
    }

    /// Searches the payloads of a frame. `outermost` is the payload of the outermost packet, already located.
    pub(super) fn run(&mut self, frame: &[u8], outermost: Option<&[u8]>) {
        for text in self.list.drain(..) {
            self.found[text] = false;
        }
        for (level, automaton, numbers) in &self.automata {
            for hit in automaton.find_overlapping_iter(payload(*level, frame, outermost).unwrap_or_default()) {
                let text = numbers[hit.pattern().as_usize()];
                if !std::mem::replace(&mut self.found[text], true) {
                    self.list.push(text);
                }
            }
        }
    }

    /// Whether the text was found.
    pub(super) fn has(&self, text: usize) -> bool {
        self.found[text]
    }

    /// All texts that were found.
    pub(super) fn found(&self) -> &[usize] {
        &self.list
    }
}
