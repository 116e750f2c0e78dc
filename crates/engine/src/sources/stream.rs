use super::host::Host;
use super::mix::Sizes;
use super::spec::StreamSpec;
use super::values::Walker;
use crate::random::Random;
use packet::{HeapFrame, Key, MacAddr, Site, Template};
use units::ParseError;

/// Makes the frames of a stream, one after the other.
#[derive(Clone, Debug)]
struct Stream {
    template: Template,
    fields: Vec<(Site, Walker)>,
    sizes: Sizes,
    sequence: u64,
    host: Option<Host>,
}

impl Stream {
    fn new(spec: &StreamSpec, seed: u64, number: u16) -> Result<Self, ParseError> {
        let path = if number == 0 { "stream".to_owned() } else { format!("stream{number}") };
        let random = |what: &str| Random::stream(seed, &format!("{path}/{what}"));
        let (mut template, sizes) = spec.template(&mut random("payload"), number)?;
        let mut fields = Vec::new();
        for (key, values) in spec.fields.iter().filter(|(_, values)| values.only().is_none()) {
            let site = template.site(*key).expect("the template was checked for it");
            template.vary(&site);
            fields.push((site, Walker::new(values, random(key.name()))));
        }
        let host = Host::of(spec, &template);
        Ok(Stream { template, fields, sizes: Sizes::new(sizes, random("size")), sequence: 0, host })
    }

    #[inline]
    fn next_frame<'a, E>(&mut self, room: impl FnOnce(usize) -> Result<&'a mut [u8], E>) -> Result<(), E> {
        let mut sums = self.template.sums();
        for (site, walker) in &mut self.fields {
            self.template.set(site, walker.next(), &mut sums);
        }
        let length = self.sizes.draw().without_fcs() as usize;
        let sequence = self.sequence;
        self.sequence += 1;
        self.template.write(sums, sequence, room(length)?);
        Ok(())
    }
}

/// Makes the frames of one stream or of several in turn, each as often as its weight.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    weights: Vec<i64>,
    /// Of each stream: how far it is behind its share.
    credit: Vec<i64>,
    first: u16,
}

impl Streams {
    /// The streams that `specs` describe, numbered from `first` on. Each draws from random streams of
    /// its own, named by its number.
    ///
    /// # Errors
    /// One that cannot be made.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(specs: &[StreamSpec], seed: u64, first: u16) -> Result<Self, ParseError> {
        assert!(!specs.is_empty(), "a source has a stream at least");
        let numbered = specs.iter().zip(first..);
        let streams = numbered.map(|(spec, number)| Stream::new(spec, seed, number)).collect::<Result<Vec<_>, _>>()?;
        let weights = specs.iter().map(|spec| i64::from(spec.weight)).collect();
        Ok(Streams { credit: vec![0; streams.len()], streams, weights, first })
    }

    /// Makes the next frame: of its length, without FCS, `room` gives the place it is written to.
    ///
    /// # Errors
    /// What `room` refuses; the frame is then left out.
    #[inline]
    pub fn next_frame<'a, E>(&mut self, room: impl FnOnce(usize) -> Result<&'a mut [u8], E>) -> Result<(), E> {
        let turn = if self.streams.len() == 1 { 0 } else { self.turn() };
        self.streams[turn].next_frame(room)
    }

    /// Makes `frame` the next one.
    pub fn fill(&mut self, frame: &mut HeapFrame) {
        let made: Result<(), std::convert::Infallible> = self.next_frame(|length| Ok(frame.resize(length)));
        let Ok(()) = made;
    }

    /// Frames say when they departed, which is to be written when they do.
    #[must_use]
    pub fn stamped(&self) -> bool {
        self.streams.iter().any(|stream| stream.template.is_stamped())
    }

    /// Of each stream that stamps its frames: its number and how many were made.
    pub fn made(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let numbered = self.streams.iter().zip(self.first..);
        let stamped = numbered.filter(|(stream, _)| stream.template.is_stamped());
        stamped.map(|(stream, number)| (number, stream.sequence))
    }

    /// Who the frames come from: of each stream with addresses, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.streams.iter().filter_map(|stream| stream.host.as_ref())
    }

    /// Sends the frames of all streams that `of` names, and that say no destination by themselves, to this
    /// hardware address.
    pub fn aim(&mut self, mac: MacAddr, of: impl Fn(&Host) -> bool) {
        for stream in &mut self.streams {
            if stream.host.as_ref().is_some_and(|host| !host.aimed && of(host))
                && let Some(site) = stream.template.site(Key::Dmac)
            {
                stream.template.fix(&site, mac.number());
            }
        }
    }

    /// Smooth weighted round robin, as [`Sizes`] mixes sizes.
    fn turn(&mut self) -> usize {
        let mut best = 0;
        let mut total = 0;
        for (i, weight) in self.weights.iter().enumerate() {
            total += weight;
            self.credit[i] += weight;
            if self.credit[i] > self.credit[best] {
                best = i;
            }
        }
        self.credit[best] -= total;
        best
    }
}
