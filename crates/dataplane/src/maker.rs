use dpdk::{Burst, Pool};
use engine::sources::Streams;
use packet::{Frame, Stamp};
use units::FrameLen;

/// Generates the frames of streams in buffers of a pool.
///
/// If all frames have one length and the pool belongs to this source alone, every buffer already holds such a frame,
/// and only the bytes that vary are written.
pub(crate) struct Maker {
    stream: Box<Streams>,
    left: u64,
    pool: Pool,
    /// The length without FCS of all frames, if the pool's buffers are prefilled.
    laid: Option<u16>,
}

impl Maker {
    /// Generates `count` frames, or endlessly; each frame is written completely.
    pub(crate) fn new(stream: Box<Streams>, count: Option<u64>, pool: Pool) -> Self {
        Maker { stream, left: count.unwrap_or(u64::MAX), pool, laid: None }
    }

    /// Prefills the pool's buffers, if all frames have one length. From then on nothing else may write to the buffers,
    /// including stages and receivers.
    pub(crate) fn lay(mut self) -> Self {
        let fits = |length: &usize| *length <= usize::from(self.pool.data_room());
        let Some(length) = self.stream.even().filter(fits) else { return self };
        let mut all = Vec::new();
        while let Some(mut frame) = self.pool.alloc() {
            frame.set_len(length).expect("it was compared with the room");
            self.stream.lay(frame.bytes_mut());
            all.push(frame);
        }
        Maker { laid: Some(length as u16), ..self }
    }

    /// Splits it into `parts` concurrent makers with the same total number of frames.
    ///
    /// # Errors
    /// There are not enough stream numbers.
    pub(crate) fn deal(self, parts: usize) -> Result<Vec<Self>, units::ParseError> {
        let streams = self.stream.deal(parts as u16)?;
        let share = |part: u64| match self.left {
            u64::MAX => u64::MAX,
            left => left / parts as u64 + u64::from(part < left % parts as u64),
        };
        let part = |(stream, part): (Streams, u64)| Maker {
            stream: Box::new(stream),
            left: share(part),
            pool: self.pool.clone(),
            laid: self.laid,
        };
        Ok(streams.into_iter().zip(0..).map(part).collect())
    }

    /// Frames still to generate.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// `None` unless classes pace the streams; otherwise whether a stream belongs to a class that is not `full`.
    pub(crate) fn wanted(&mut self, full: impl Fn(usize) -> bool) -> Option<bool> {
        self.stream.is_paced().then(|| self.stream.wanted(full))
    }

    /// The streams, which count the frames generated per stream.
    pub(crate) fn streams(&self) -> &Streams {
        &self.stream
    }

    /// Adds up to `most` frames to a burst. Returns the lengths of frames left out because no buffer holds them.
    #[inline]
    pub(crate) fn make(&mut self, burst: &mut Burst, most: usize) -> Vec<FrameLen> {
        let most = most.min(usize::try_from(self.left).unwrap_or(most));
        let before = burst.len();
        if let Some(length) = self.laid {
            self.left -= self.pool.take_up_to(burst, most, length) as u64;
            self.stream.patch(burst.as_mut_slice()[before..].iter_mut().map(|frame| frame.bytes_mut()));
            return Vec::new();
        }
        self.left -= self.pool.alloc_up_to(burst, most) as u64;
        let mut refused = Vec::new();
        for frame in &mut burst.as_mut_slice()[before..] {
            let written = self.stream.next_frame(move |length| {
                frame.set_len(length).map_err(|_| FrameLen::of_captured(length as u32))?;
                Ok::<_, FrameLen>(frame.bytes_mut())
            });
            refused.extend(written.err());
        }
        if !refused.is_empty() {
            // They are still empty, as they came from the pool.
            burst.retain(|frame| frame.len() > 0);
        }
        refused
    }

    /// Writes the departure time, in ns since the UNIX epoch, into frames that were just generated.
    #[inline]
    pub(crate) fn date(&self, burst: &mut Burst, time_ns: u64) {
        let Some(end) = self.stream.stamp_end() else { return redate(burst, time_ns) };
        for frame in burst.iter_mut() {
            Stamp::set_first_time(&mut frame.bytes_mut()[..end], time_ns);
        }
    }

    /// Writes the lengths of the frames of a burst into `lengths`.
    #[inline]
    pub(crate) fn lengths(&self, burst: &Burst, lengths: &mut Vec<FrameLen>) {
        lengths.clear();
        match self.laid {
            Some(length) => lengths.resize(burst.len(), FrameLen::of_captured(length.into())),
            None => lengths.extend(burst.iter().map(Frame::length)),
        }
    }
}

/// Writes the departure time into the stamped frames of a burst.
pub(crate) fn redate(burst: &mut Burst, time_ns: u64) {
    burst.iter_mut().for_each(|frame| Stamp::set_time(frame.bytes_mut(), time_ns));
}
