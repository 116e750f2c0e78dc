use aho_corasick::AhoCorasick;

/// Searches a payload for all texts at once (Aho and Corasick 1975).
#[derive(Clone, Debug)]
pub(super) struct Search {
    automaton: AhoCorasick,
    found: Vec<bool>,
    list: Vec<usize>,
}

impl Search {
    /// A search for these texts; `None` if there are none.
    pub(super) fn new(texts: &[Vec<u8>]) -> Option<Self> {
        let automaton = AhoCorasick::new(texts).ok().filter(|_| !texts.is_empty())?;
        Some(Search { automaton, found: vec![false; texts.len()], list: Vec::new() })
    }

    /// Searches a payload.
    pub(super) fn run(&mut self, payload: &[u8]) {
        for text in self.list.drain(..) {
            self.found[text] = false;
        }
        for hit in self.automaton.find_overlapping_iter(payload) {
            let text = hit.pattern().as_usize();
            if !std::mem::replace(&mut self.found[text], true) {
                self.list.push(text);
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
