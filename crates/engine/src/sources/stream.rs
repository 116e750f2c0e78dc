use super::host::{Destinations, Host};
use super::mix::Sizes;
use super::spec::{Payload, StreamSpec};
use super::values::{Counter, Walker};
use crate::random::Random;
use packet::{HeapFrame, Key, MacAddr, Site, Sums, Template};
use units::ParseError;

/// Generates the frames of one stream.
#[derive(Clone, Debug)]
struct Stream {
    template: Template,
    fields: Vec<Field>,
    sizes: Sizes,
    sequence: u64,
    /// The random stream for the payload, if each frame has its own.
    payload: Option<Random>,
    host: Option<Host>,
    target: Option<Destinations>,
    /// Partial checksums of the bytes that all frames share.
    laid: Sums,
}

/// A varying field.
#[derive(Clone, Debug)]
struct Field {
    site: Site,
    walker: Walker,
    /// Yields the same values faster, if the walk allows it.
    counter: Option<Counter>,
}

impl Field {
    fn new(site: Site, walker: Walker) -> Self {
        Field { counter: walker.counter().filter(|_| site.is_word()), site, walker }
    }
}

impl Stream {
    fn new(spec: &StreamSpec, seed: u64, number: u16) -> Result<Self, ParseError> {
        let path = if number == 0 { "stream".to_owned() } else { format!("stream{number}") };
        let random = |what: &str| Random::stream(seed, &format!("{path}/{what}"));
        let (mut template, sizes, sites) = spec.template(&mut random("payload"), number)?;
        let mut fields = Vec::new();
        for (site, (values, name)) in
            sites.into_iter().zip(spec.varied()).filter(|(_, (values, _))| values.only().is_none())
        {
            template.vary(&site);
            fields.push(Field::new(site, Walker::new(values, random(&name))));
        }
        let host = Host::of(spec, &template);
        let target = Destinations::of(spec, &template);
        let sizes = Sizes::new(sizes, random("size"));
        let payload = (spec.payload == Some(Payload::RandomEach)).then(|| random("payload-each"));
        Ok(Stream { template, fields, sizes, sequence: 0, payload, host, target, laid: Sums::default() })
    }

    #[inline]
    fn next_frame<'a, E>(&mut self, room: impl FnOnce(usize) -> Result<&'a mut [u8], E>) -> Result<(), E> {
        let mut sums = self.template.sums();
        for Field { site, walker, counter } in &mut self.fields {
            match counter {
                Some(counter) => self.template.set_word(site, counter.next() as u32, &mut sums),
                None => self.template.set(site, walker.next(), &mut sums),
            }
        }
        let length = self.sizes.draw().without_fcs() as usize;
        let sequence = self.sequence;
        self.sequence += 1;
        let frame = room(length)?;
        self.template.write(sums, sequence, frame);
        if let Some(random) = &mut self.payload {
            self.template.draw_payload(frame, || random.bits());
        }
        Ok(())
    }
}

/// Generation of frames of equal length: [`Streams::even`].
impl Stream {
    /// True if all frames are equal.
    fn is_constant(&self) -> bool {
        self.fields.is_empty() && !self.template.is_stamped() && self.payload.is_none()
    }

    #[inline]
    fn patch(&mut self, frame: &mut [u8]) {
        let mut sums = self.laid;
        for Field { site, walker, counter } in &mut self.fields {
            match counter {
                Some(counter) => sums.put_word(site, counter.next() as u32, frame),
                None => sums.put(site, walker.next(), frame),
            }
        }
        self.template.seal(sums, self.sequence, frame);
        if let Some(random) = &mut self.payload {
            self.template.draw_payload(frame, || random.bits());
        }
        self.sequence += 1;
    }

    /// The part of the stream that one of several generators creates, see [`Streams::deal`].
    fn part(&self, part: u16, of: u16, apart: u16) -> Option<Self> {
        let mut stream = self.clone();
        if of > 1 {
            stream.template.renumber(part.checked_mul(apart)?)?;
            let name = format!("part{part}");
            for field in &mut stream.fields {
                field.walker.deal(u64::from(part), u64::from(of), &name);
                *field = Field::new(field.site, field.walker.clone());
            }
            stream.sizes.deal(&name);
            stream.payload = stream.payload.map(|random| random.child(&name));
        }
        Some(stream)
    }
}

/// Generates the frames of one or several streams in turn, by weight.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    weights: Vec<i64>,
    /// Per stream: the credit, which is how far it is behind its share.
    credit: Vec<i64>,
    /// Per stream: the class of its frames. Empty unless classes pace the streams.
    classes: Vec<usize>,
    /// Per stream, if classes pace them: true if it is skipped because its class has enough frames waiting.
    passed: Vec<bool>,
    first: u16,
    /// Distance between the stream numbers of the parts.
    apart: u16,
}

impl Streams {
    /// The streams of `specs`, numbered from `first` on. Each has its own random streams, which are named by its
    /// number.
    ///
    /// # Errors
    /// A stream that cannot be generated.
    ///
    /// # Panics
    /// If `specs` is empty.
    pub fn new(specs: &[StreamSpec], seed: u64, first: u16) -> Result<Self, ParseError> {
        assert!(!specs.is_empty(), "a source has a stream at least");
        let numbered = specs.iter().zip(first..);
        let streams = numbered.map(|(spec, number)| Stream::new(spec, seed, number)).collect::<Result<Vec<_>, _>>()?;
        let weights = specs.iter().map(|spec| i64::from(spec.weight)).collect();
        let apart = streams.len() as u16;
        let credit = vec![0; streams.len()];
        Ok(Streams { credit, apart, streams, weights, classes: Vec::new(), passed: Vec::new(), first })
    }

    /// Paces streams by their classes: all frames of a stream belong to the class given here, and a stream is skipped
    /// while its class has enough frames. See [`wanted`](Streams::wanted).
    #[must_use]
    pub fn paced_by(self, classes: Vec<usize>) -> Self {
        Streams { passed: vec![false; classes.len()], classes, ..self }
    }

    /// Skips the streams of classes that are `full`, until the next call. False if all are skipped.
    pub fn wanted(&mut self, full: impl Fn(usize) -> bool) -> bool {
        for (passed, class) in self.passed.iter_mut().zip(&self.classes) {
            *passed = full(*class);
        }
        self.classes.is_empty() || self.passed.contains(&false)
    }

    /// True if classes pace the streams.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Generates the next frame. `room` receives the length without FCS and returns a buffer.
    ///
    /// # Errors
    /// The error of `room`; the frame is then skipped.
    #[inline]
    pub fn next_frame<'a, E>(&mut self, room: impl FnOnce(usize) -> Result<&'a mut [u8], E>) -> Result<(), E> {
        let turn = if self.streams.len() == 1 { 0 } else { self.turn() };
        self.streams[turn].next_frame(room)
    }

    /// The length without FCS of all frames, if there is one stream whose frames have equal lengths (an even stream).
    /// Its frames differ only in a few bytes. [`patch`](Streams::patch) turns a buffer that [`lay`](Streams::lay)
    /// prepared, or that contains any frame of the stream, into the next frame.
    #[must_use]
    pub fn even(&self) -> Option<usize> {
        match &self.streams[..] {
            [stream] => stream.sizes.only().map(|length| length.without_fcs() as usize),
            _ => None,
        }
    }

    /// Whether all frames of all streams have the same length.
    #[must_use]
    pub fn have_one_length(&self) -> bool {
        let mut lengths = self.streams.iter().map(|stream| stream.sizes.only());
        let first = lengths.next().flatten();
        first.is_some() && lengths.all(|length| length == first)
    }

    /// Writes the bytes that all frames of an even stream share into a buffer of their length.
    pub fn lay(&mut self, frame: &mut [u8]) {
        let stream = &mut self.streams[0];
        stream.laid = stream.template.lay(frame);
        if stream.is_constant() {
            stream.template.seal(stream.laid, 0, frame);
        }
    }

    /// Turns each buffer, which contains any frame of this even stream, into the next frame. The bytes are the same as
    /// with [`next_frame`](Streams::next_frame).
    #[inline]
    pub fn patch<'a>(&mut self, frames: impl Iterator<Item = &'a mut [u8]>) {
        let stream = &mut self.streams[0];
        if !stream.is_constant() {
            frames.for_each(|frame| stream.patch(frame));
        }
    }

    /// The length without FCS of the longest possible frame.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.streams.iter().map(|stream| stream.template.given_length()).max().unwrap_or(0)
    }

    /// Offset of the end of the stamp in frames of an even stream, if they have one.
    #[must_use]
    pub fn stamp_end(&self) -> Option<usize> {
        self.streams[0].template.stamp_end(self.even()?)
    }

    /// Sets the distance between the stream numbers of parts, see [`deal`](Streams::deal).
    #[must_use]
    pub fn numbered_apart(self, apart: u16) -> Self {
        Streams { apart, ..self }
    }

    /// Splits the generation among `parts` independent generators. The fields of part k take the values of the frames
    /// k, k + n, k + 2 n…, so that together the parts walk the same ranges. Random values come from separate random
    /// streams. Each part numbers its own stamps, under a stream number that is k × `apart` higher, so a receiver sees
    /// every part in order.
    ///
    /// # Errors
    /// There are not enough stream numbers.
    pub fn deal(&self, parts: u16) -> Result<Vec<Streams>, ParseError> {
        let part = |part: u16| {
            let streams = self.streams.iter().map(|stream| stream.part(part, parts, self.apart));
            let streams = streams.collect::<Option<Vec<_>>>().ok_or_else(|| {
                let what = format!("{} streams on {parts} cores have no numbers for their stamps", self.streams.len());
                ParseError::new(what, "name fewer cores")
            })?;
            let first = self.first + part * self.apart;
            Ok(Streams {
                streams,
                weights: self.weights.clone(),
                credit: self.credit.clone(),
                classes: self.classes.clone(),
                passed: self.passed.clone(),
                first,
                apart: self.apart,
            })
        };
        (0..parts.max(1)).map(part).collect()
    }

    /// Replaces `frame` with the next frame.
    pub fn fill(&mut self, frame: &mut HeapFrame) {
        let made: Result<(), std::convert::Infallible> = self.next_frame(|length| Ok(frame.resize(length)));
        let Ok(()) = made;
    }

    /// True if frames carry a stamp. The sender writes its time at departure.
    #[must_use]
    pub fn stamped(&self) -> bool {
        self.streams.iter().any(|stream| stream.template.is_stamped())
    }

    /// Per stream with stamps: its number and the number of frames generated.
    pub fn made(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let numbered = self.streams.iter().zip(self.first..);
        let stamped = numbered.filter(|(stream, _)| stream.template.is_stamped());
        stamped.map(|(stream, number)| (number, stream.sequence))
    }

    /// The sender of each stream with addresses, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.streams.iter().filter_map(|stream| stream.host.as_ref())
    }

    /// The destination of each stream with addresses, in order.
    pub fn targets(&self) -> impl Iterator<Item = &Destinations> {
        self.streams.iter().filter_map(|stream| stream.target.as_ref())
    }

    /// Sets the destination MAC address in all streams that `of` selects, except those that set it themselves.
    pub fn aim(&mut self, mac: MacAddr, of: impl Fn(&Host) -> bool) {
        for stream in &mut self.streams {
            if stream.host.as_ref().is_some_and(|host| !host.aimed && of(host))
                && let Some(site) = stream.template.site(Key::Dmac)
            {
                stream.template.fix(&site, mac.number());
            }
        }
    }

    /// Smooth weighted round robin, as in [`Sizes`], among the streams that are not skipped. A skipped stream catches
    /// up later, by at most one round.
    fn turn(&mut self) -> usize {
        let mut best = None;
        let mut total = 0;
        let round: i64 = if self.passed.is_empty() { 0 } else { self.weights.iter().sum() };
        for (i, weight) in self.weights.iter().enumerate() {
            let passed = self.passed.get(i) == Some(&true);
            if passed && self.credit[i] >= round {
                continue;
            }
            total += weight;
            self.credit[i] += weight;
            if !passed && best.is_none_or(|best: usize| self.credit[i] > self.credit[best]) {
                best = Some(i);
            }
        }
        let best = best.unwrap_or(0);
        self.credit[best] -= total;
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{SizeSpec, Values};
    use packet::{Frame, Key, Protocol, Stamp};
    use units::FrameLen;

    /// UDP with fields that are walked, listed, random, or part of a word.
    fn spec(stamp: bool, fields: usize) -> StreamSpec {
        let range = |first, last, step| Values { parts: vec![(first, last)], step, random: false };
        let all = [
            (Key::Source, range(0x0a00_0001, 0x0a00_0009, 2)),
            (Key::Dport, range(65_530, 65_535, 1)),
            (Key::Destination, Values { random: true, ..range(0x0a01_0000, 0x0a01_ffff, 1) }),
            (Key::Dscp, range(0, 63, 5)),
            (Key::Sport, Values { parts: vec![(7, 7), (100, 102)], step: 1, random: false }),
            (Key::Dmac, range(0x0200_0000_0001, 0x0200_0000_0010, 1)),
        ];
        let size = Some(SizeSpec::Fixed(FrameLen::new(90)));
        let fields = all[..fields].to_vec();
        StreamSpec { fields, size, stamp: Some(stamp), ..StreamSpec::made(Protocol::Udp, false) }
    }

    #[test]
    fn patched_frames_equal_generated_ones() {
        for (stamp, fields) in (0..=6).flat_map(|fields| [(false, fields), (true, fields)]) {
            let payload = (fields % 2 == 0).then_some(Payload::RandomEach);
            let specs = [StreamSpec { payload, ..spec(stamp, fields) }];
            let mut whole = Streams::new(&specs, 7, 3).expect("a stream");
            let mut even = Streams::new(&specs, 7, 3).expect("a stream");
            assert_eq!(even.even(), Some(86));
            let mut buffers = vec![vec![0xee; 86]; 3];
            buffers.iter_mut().for_each(|buffer| even.lay(buffer));
            let mut frame = HeapFrame::default();
            for _ in 0..40 {
                even.patch(buffers.iter_mut().map(|buffer| &mut buffer[..]));
                for buffer in &buffers {
                    whole.fill(&mut frame);
                    assert_eq!(buffer[..], *frame.bytes(), "{fields} fields, stamp {stamp}");
                }
            }
        }
    }

    #[test]
    fn walks_over_protocols_change_only_their_field() {
        // Includes TCP, UDP, ARP and a VLAN tag, which changes how the rest of the frame is parsed.
        let walked = |first, last| Values { parts: vec![(first, last)], step: 1, random: false };
        let of = |protocol, v6, field| StreamSpec {
            fields: vec![field],
            stamp: Some(false),
            ..StreamSpec::made(protocol, v6)
        };
        for (protocol, v6, key, first, last, at, width) in [
            (Protocol::Ip, false, Key::Proto, 1, 20, 23, 1),
            (Protocol::Ip, false, Key::Proto, 6, 7, 23, 1),
            (Protocol::Ip, true, Key::Proto, 0, 60, 20, 1),
            (Protocol::Ethernet, false, Key::EtherType, 0x0806, 0x0810, 12, 2),
            (Protocol::Ethernet, false, Key::EtherType, 0x8100, 0x8102, 12, 2),
        ] {
            let mut streams = Streams::new(&[of(protocol, v6, (key, walked(first, last)))], 7, 0).expect("a stream");
            let mut frame = HeapFrame::default();
            for value in (first..=last).cycle().take(70) {
                streams.fill(&mut frame);
                let written = frame.bytes()[at..at + width].iter().fold(0, |all, byte| all << 8 | u128::from(*byte));
                assert_eq!(written, value, "{protocol:?} v6 {v6} {key:?} from {first}");
                if protocol == Protocol::Ip && !v6 {
                    let header = frame.bytes()[14..34].chunks_exact(2);
                    let sum: u32 = header.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
                    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the header's sum is right: {value}");
                }
            }
        }
    }

    #[test]
    fn arp_sender_equals_the_frame_sender() {
        let macs = |random| Values { parts: vec![(0x0200_0000_0101, 0x0200_0000_01ff)], step: 2, random };
        for (random, with_sha) in [(false, false), (true, false), (false, true)] {
            let mut spec = StreamSpec::made(Protocol::Arp, false);
            spec.fields.push((Key::Smac, macs(random)));
            spec.fields.extend(with_sha.then(|| (Key::Sha, Values::fixed(0x0200_0000_0009))));
            let mut streams = Streams::new(&[spec], 7, 0).expect("a stream").deal(2).expect("few parts").remove(1);
            let mut frame = HeapFrame::default();
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..20 {
                streams.fill(&mut frame);
                let (mac, sender) = (frame.bytes()[6..12].to_vec(), frame.bytes()[22..28].to_vec());
                assert_eq!(sender, if with_sha { vec![2, 0, 0, 0, 0, 9] } else { mac.clone() }, "random {random}");
                seen.insert(mac);
            }
            assert!(seen.len() > 9, "random {random}: {seen:?}");
        }
    }

    /// The number in a stamp has 32 bits and wraps around; the frame stays intact.
    #[test]
    fn streams_go_on_past_2_to_the_33_frames() {
        let mut streams = Streams::new(&[spec(true, 2)], 7, 0).expect("a stream");
        streams.streams[0].sequence = (1 << 33) - 2;
        let mut frame = HeapFrame::default();
        let mut next = || {
            streams.fill(&mut frame);
            // The bytes that the UDP checksum covers, including the checksum: 8 bytes of addresses, then everything
            // from the ports on.
            let (addresses, rest) = (&frame.bytes()[26..34], &frame.bytes()[34..]);
            let pseudo = [&[0, 17][..], &(rest.len() as u16).to_be_bytes()].concat();
            assert_eq!(packet::internet_checksum(&[addresses, &pseudo, rest]), 0, "{:02x?}", frame.bytes());
            Stamp::of(frame.bytes()).map(|stamp| stamp.sequence)
        };
        assert_eq!([next(), next(), next(), next()].map(Option::unwrap_or_default), [u32::MAX - 1, u32::MAX, 0, 1]);
    }

    #[test]
    fn streams_of_full_classes_are_skipped_without_loss() {
        let mut streams = Streams::new(&[spec(true, 0), spec(true, 0), spec(true, 0)], 7, 0).expect("streams");
        assert!(streams.wanted(|_| true), "without classes weights alone decide");
        streams = streams.paced_by(vec![0, 1, 0]);
        let mut frame = HeapFrame::default();
        let mut turns = |streams: &mut Streams, full: &[usize]| {
            let wanted = streams.wanted(|class| full.contains(&class));
            let mut next = || {
                streams.fill(&mut frame);
                Stamp::of(frame.bytes()).map(|stamp| (stamp.stream, stamp.sequence)).expect("a stamp")
            };
            (wanted, if wanted { vec![next(), next(), next()] } else { Vec::new() })
        };
        assert_eq!(turns(&mut streams, &[]), (true, vec![(0, 0), (1, 0), (2, 0)]));
        assert_eq!(turns(&mut streams, &[0]), (true, vec![(1, 1), (1, 2), (1, 3)]));
        assert_eq!(turns(&mut streams, &[1]), (true, vec![(0, 1), (2, 1), (0, 2)]));
        assert_eq!(turns(&mut streams, &[0, 1]), (false, vec![]));
        // Skipped streams catch up.
        assert_eq!(turns(&mut streams, &[]), (true, vec![(2, 2), (0, 3), (2, 3)]));
    }

    #[test]
    fn parts_interleave_to_the_frames_of_one_maker() {
        for laid in [false, true] {
            let mut walked = spec(true, 2);
            walked.stamp = Some(false);
            let mut one = Streams::new(&[walked], 7, 0).expect("a stream");
            let mut buffer = vec![0; 86];
            let mut dealt = one.clone();
            if laid {
                dealt.lay(&mut buffer);
            }
            let mut parts = dealt.deal(3).expect("few parts");
            let (mut expected, mut got) = (HeapFrame::default(), HeapFrame::default());
            for i in 0..60 {
                one.fill(&mut expected);
                if laid {
                    parts[i % 3].patch(std::iter::once(&mut buffer[..]));
                    assert_eq!(buffer[..], *expected.bytes(), "{i}");
                } else {
                    parts[i % 3].fill(&mut got);
                    assert_eq!(got.bytes(), expected.bytes(), "{i}");
                }
            }
        }
    }

    #[test]
    fn parts_number_their_own_stamps() {
        let streams = Streams::new(&[spec(true, 1), spec(true, 0)], 7, 5).expect("streams").numbered_apart(10);
        let mut frame = HeapFrame::default();
        let mut seen = Vec::new();
        for mut part in streams.deal(2).expect("few parts") {
            for _ in 0..4 {
                part.fill(&mut frame);
                seen.push(Stamp::of(frame.bytes()).map(|stamp| (stamp.stream, stamp.sequence)));
            }
            let made: Vec<_> = part.made().collect();
            assert_eq!(made.iter().map(|(_, made)| made).sum::<u64>(), 4);
        }
        let expected = [(5, 0), (6, 0), (5, 1), (6, 1), (15, 0), (16, 0), (15, 1), (16, 1)];
        assert_eq!(seen, expected.map(Some));
        assert!(streams.numbered_apart(40_000).deal(3).is_err(), "beyond the last number");
    }
}
