//! Messages of an exchange. Request and answer have equal lengths, so that the answering side cannot be used to amplify
//! traffic.

/// Length of a message in bytes.
pub(super) const LENGTH: usize = 64;

const MAGIC: [u8; 4] = *b"NLCK";
const VERSION: u8 = 1;
const REQUEST: u8 = 1;
const ANSWER: u8 = 2;

/// An answer: the stamps of the peer, in ns of UNIX time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) received_at: i64,
    pub(super) sent: i64,
}

fn message(kind: u8, nonce: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5] = kind;
    bytes[8..16].copy_from_slice(&nonce.to_be_bytes());
    bytes
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// A request with a random `nonce`. Only a host that has seen the request can answer it.
pub(super) fn request(nonce: u64) -> [u8; LENGTH] {
    message(REQUEST, nonce)
}

/// The nonce of a request; `None` unless every bit is as expected.
pub(super) fn read_request(bytes: &[u8]) -> Option<u64> {
    let nonce = (bytes.len() == LENGTH).then(|| word(bytes, 8))?;
    (*bytes == request(nonce)).then_some(nonce)
}

/// The answer to the request with this nonce.
pub(super) fn answer(nonce: u64, Answer { received_at, sent }: Answer) -> [u8; LENGTH] {
    let mut bytes = message(ANSWER, nonce);
    bytes[16..24].copy_from_slice(&received_at.to_be_bytes());
    bytes[24..32].copy_from_slice(&sent.to_be_bytes());
    bytes
}

/// The stamps of an answer to the request with this nonce; `None` for anything else.
pub(super) fn read_answer(bytes: &[u8], nonce: u64) -> Option<Answer> {
    let fits = bytes.len() == LENGTH && bytes[..16] == message(ANSWER, nonce)[..16];
    fits.then(|| Answer { received_at: word(bytes, 16).cast_signed(), sent: word(bytes, 24).cast_signed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_matches_only_its_request() {
        let stamps = Answer { received_at: 1_795_629_600_000_000_001, sent: 1_795_629_600_000_000_999 };
        let answer = answer(77, stamps);
        assert_eq!(read_answer(&answer, 77), Some(stamps));
        assert_eq!(read_answer(&answer, 78), None);
        assert_eq!(read_answer(&answer[..63], 77), None);
        assert_eq!(answer.len(), request(77).len(), "no larger than the request");
    }

    #[test]
    fn rejects_incomplete_requests() {
        let good = request(u64::MAX);
        assert_eq!(read_request(&good), Some(u64::MAX));
        assert_eq!(read_request(&[]), None);
        assert_eq!(read_request(&good[..63]), None);
        assert_eq!(read_request(&[&good[..], &[0]].concat()), None);
        assert_eq!(
            read_request(&answer(1, Answer { received_at: 0, sent: 0 })),
            None,
            "or two of them would never stop"
        );
        for at in (0..8).chain(16..LENGTH) {
            let mut bad = good;
            bad[at] ^= 1;
            assert_eq!(read_request(&bad), None, "byte {at}");
        }
    }
}
