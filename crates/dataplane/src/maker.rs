use dpdk::{Burst, Pool};
use engine::sources::Streams;
use packet::{Frame, Stamp};
use units::FrameLen;

/// Makes the frames of streams in buffers of a pool.
///
/// Where all frames have one length and the pool is this source's alone, every buffer holds such a frame
/// already, and only what differs from frame to frame is written.
pub(crate) struct Maker {
    stream: Box<Streams>,
    left: u64,
    pool: Pool,
    /// The length without FCS of all frames, if the pool's buffers were laid.
    laid: Option<u16>,
}

impl Maker {
    /// Makes `count` frames, endlessly many if not said; each is written whole.
    pub(crate) fn new(stream: Box<Streams>, count: Option<u64>, pool: Pool) -> Self {
        Maker { stream, left: count.unwrap_or(u64::MAX), pool, laid: None }
    }

    /// Lays the frames in the pool, if they are all of one length. From now on nobody else may write to
    /// its buffers, stages and those who are sent them included.
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

    /// Parts it among so many that run at once, and make as many frames together.
    ///
    /// # Errors
    /// There are no numbers for so many streams.
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

    /// Frames that are still to be made.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Whether classes decide which stream has its turn, and if so whether one has that is not of a `full` class.
    pub(crate) fn wanted(&mut self, full: impl Fn(usize) -> bool) -> Option<bool> {
        self.stream.is_paced().then(|| self.stream.wanted(full))
    }

    /// The streams, which know how many frames of each were made.
    pub(crate) fn streams(&self) -> &Streams {
        &self.stream
    }

    /// Adds up to `most` frames to a burst. Gives the lengths of those that were left out since no buffer holds them.
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
            // They are as empty as they came from the pool.
            burst.retain(|frame| frame.len() > 0);
        }
        refused
    }

    /// Writes the time of departure, in ns since the UNIX epoch, into frames that were just made.
    #[inline]
    pub(crate) fn date(&self, burst: &mut Burst, time_ns: u64) {
        let Some(end) = self.stream.stamp_end() else { return redate(burst, time_ns) };
        for frame in burst.iter_mut() {
            Stamp::set_first_time(&mut frame.bytes_mut()[..end], time_ns);
        }
    }

    /// The lengths of the frames of a burst, in `lengths`.
    #[inline]
    pub(crate) fn lengths(&self, burst: &Burst, lengths: &mut Vec<FrameLen>) {
        lengths.clear();
        match self.laid {
            Some(length) => lengths.resize(burst.len(), FrameLen::of_captured(length.into())),
            None => lengths.extend(burst.iter().map(Frame::length)),
        }
    }
}

/// Writes the time of departure into those frames of a burst that are stamped.
pub(crate) fn redate(burst: &mut Burst, time_ns: u64) {
    burst.iter_mut().for_each(|frame| Stamp::set_time(frame.bytes_mut(), time_ns));
}
