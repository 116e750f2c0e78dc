//! Limits each of many users to its rate: drops, delays or marks frames that exceed it.

mod metering;
mod settling;
mod stage;
#[cfg(test)]
mod tests;
mod text;

pub use metering::{Look, Metering};
pub use settling::Settling;

use super::{Configuration, Kind, Stage, frames_of_10g};
use crate::meters::{Algorithm, Bucket, Colours, KeyKind, Limiter, Rates, Seconds, Users};
use crate::random::Random;
use crate::schedules::{Advise, Files};
use measure::{LimitReport, LimitedUser};
use packet::Frame;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use units::{BitRate, FrameLen, Layer, PS_PER_S, ParseError, Span};

/// What happens to frames that exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are dropped.
    Police,
    /// They wait until they conform.
    Shape,
    /// They pass with a mark.
    Mark,
}

impl Mode {
    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Police => "police",
            Mode::Shape => "shape",
            Mode::Mark => "mark",
        }
    }
}

/// How frames are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// Sets the DSCP: the first value for yellow frames, the second for red frames. Without colours, the second is for
    /// all exceeding frames.
    Dscp(u8, u8),
    /// Sets ECN congestion experienced. Frames of senders without ECN are dropped.
    Ecn,
}

/// What happens to frames of users without a rate in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// They have the default rate.
    Default,
    /// They pass unmetered.
    Pass,
    /// They are dropped.
    Drop,
}

/// Limits each user to a rate.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The fields that define a user.
    pub key: KeyKind,
    /// The rate of users without their own rate.
    pub rate: BitRate,
    /// The layer whose bytes the rate counts.
    pub layer: Layer,
    /// Size of the bucket in bytes; [`Limit::default_burst`] if `None`.
    pub burst: Option<u64>,
    /// What happens to frames that exceed.
    pub mode: Mode,
    /// Whether the mode was written explicitly.
    mode_said: bool,
    /// How frames are marked.
    pub marking: Marking,
    /// A marker that adds a third colour to conforming and exceeding.
    pub colours: Option<Colours>,
    /// Maximum wait of a frame. By default 100 ms, and at least the time of four full-size frames at the user's rate.
    pub queue: Option<Span>,
    /// A file with the rates of users.
    pub rates: Option<PathBuf>,
    /// What happens to frames of users without a rate in the file.
    pub unknown: Unknown,
    /// Capacity in users.
    pub users: usize,
    /// A user may be evicted when its bucket has been full for this long.
    pub idle: Span,
    /// If the table is full, frames of other users pass unmetered instead of being dropped.
    pub pass_when_full: bool,
    /// The scheme.
    pub algorithm: Algorithm,
    /// Event device of `atomic-queue` on live ports: a software driver or the PCI address of a hardware device. By
    /// default the driver that is present.
    pub device: Option<String>,
    /// Number of workers: threads on live ports, otherwise modelled.
    pub workers: usize,
    /// Time that a modelled worker takes per frame.
    pub service: Option<Span>,
    shared: Shared,
}

/// State shared by the configuration, the running stage and its report. Not part of the configuration proper.
#[derive(Clone, Default)]
struct Shared {
    loaded: Option<Arc<Rates>>,
    advise: Option<Advise>,
    running: Arc<Mutex<Option<Arc<Limiter>>>>,
}

impl PartialEq for Shared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// Default capacity in users.
const USERS: usize = 1 << 20;
/// Default idle time of a user.
const IDLE: Span = Span::from_ms(10_000);
/// Maximum number of modelled workers.
const MOST_WORKERS: usize = 1_024;
/// Default of the maximum wait, and the number of full-size frames that it must at least cover.
const QUEUE: Span = Span::from_ms(100);
const QUEUE_FRAMES: u64 = 4;
/// Minimum of the default bucket: two of the largest standard frames.
const LEAST_BURST: u64 = 2 * 1_518;
/// AF12 and AF13 (RFC 2597): higher and highest drop precedence.
const MARKING: Marking = Marking::Dscp(12, 14);

impl Limit {
    /// Maximum number of users of a table, and of all tables of a pipeline: 6 GB.
    pub const MOST_USERS: usize = 100_000_000;

    /// The keyword that selects it.
    pub const NAME: &'static str = "limit";

    /// A limit with this key and rate, and defaults for the rest.
    #[must_use]
    pub fn new(key: KeyKind, rate: BitRate, layer: Layer) -> Self {
        Limit {
            key,
            rate,
            layer,
            burst: None,
            mode: Mode::Police,
            mode_said: false,
            marking: MARKING,
            colours: None,
            queue: None,
            rates: None,
            unknown: Unknown::Default,
            users: USERS,
            idle: IDLE,
            pass_when_full: false,
            algorithm: Algorithm::Gcra,
            device: None,
            workers: 1,
            service: None,
            shared: Shared::default(),
        }
    }

    /// The default bucket of a rate: 10 ms at that rate, but at least two of the largest frames.
    #[must_use]
    pub fn default_burst(rate: BitRate) -> u64 {
        LEAST_BURST.max(rate.bps() / 800)
    }

    /// Size of the bucket of a user with the default rate, in bytes.
    #[must_use]
    pub fn bucket_bytes(&self) -> u64 {
        self.burst.unwrap_or_else(|| Self::default_burst(self.rate))
    }

    /// Time to fill the bucket of a user with the default rate. If metering pauses for longer, users lose part of their
    /// rate.
    #[must_use]
    pub fn fills_in(&self) -> Span {
        let ps = u128::from(self.bucket_bytes()) * 8 * u128::from(PS_PER_S) / u128::from(self.rate.bps().max(1));
        Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    fn bucket(&self) -> Result<Bucket, ParseError> {
        Bucket::new(self.rate, self.bucket_bytes())
    }

    /// Maximum wait of a frame of a user with the default rate.
    #[must_use]
    pub fn patience(&self) -> Span {
        self.queue.unwrap_or_else(|| patience(self.rate))
    }

    /// Checks that the settings are compatible.
    fn check(self) -> Result<Self, ParseError> {
        let refuse = |what: &str, remedy: &str| Err(ParseError::new(what, remedy));
        let bucket = self.bucket()?;
        if let Some(colours) = &self.colours {
            colours.check(&bucket)?;
            match self.marking {
                Marking::Ecn if colours.aware => {
                    return refuse("ECN does not show the colour of an arriving frame", "write mark dscp YELLOW RED");
                }
                Marking::Dscp(yellow, red) if colours.aware && yellow == red => {
                    return refuse("one DSCP cannot distinguish yellow from red", "write mark dscp 12 14");
                }
                _ => {}
            }
        }
        let plain = self.algorithm == Algorithm::Gcra && self.workers == 1 && self.service.is_none();
        if self.mode == Mode::Shape && !plain {
            return refuse("shape only works with gcra on one worker", "leave the others out");
        }
        if self.colours.is_some() && (!plain || self.mode == Mode::Shape || self.rates.is_some()) {
            return refuse(
                "colours only work with gcra on one worker, with police or mark, and with one rate for all",
                "leave the others out",
            );
        }
        if self.device.is_some() && self.algorithm != Algorithm::AtomicQueue {
            return refuse("only atomic-queue has a device", "add algorithm atomic-queue, or leave the device out");
        }
        if self.queue.is_some() && self.mode != Mode::Shape {
            return refuse("only shape has a queue", "add mode shape or leave the queue out");
        }
        if self.marking != MARKING && self.mode != Mode::Mark && self.colours.is_none() {
            return refuse("nothing is marked", "add mode mark, or leave mark out");
        }
        if self.unknown != Unknown::Default && self.rates.is_none() {
            return refuse("without rates of users all of them are unknown", "add rates FILE, or leave unknown out");
        }
        Ok(self)
    }

    /// Reads the file of rates, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or has bad lines, with their numbers.
    pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        self.shared.advise = files.memory();
        if let Some(path) = &self.rates {
            let text = files.text(path)?;
            let rates = Rates::parse(self.key, &text, &|rate| self.burst.unwrap_or_else(|| Self::default_burst(rate)));
            let rates = rates
                .map_err(|error| ParseError::new(format!("{}: {error}", path.display()), "correct these lines"))?;
            if rates.users().len() > self.users {
                return Err(ParseError::new(
                    format!(
                        "{} has {} users and the table room for {}",
                        path.display(),
                        rates.users().len(),
                        self.users
                    ),
                    format!("write users {}", rates.users().len()),
                ));
            }
            self.shared.loaded = Some(Arc::new(rates));
        }
        Ok(())
    }

    /// Reads the file of rates again and applies it to the running stage, under traffic. Returns the number of rates.
    ///
    /// # Errors
    /// As [`Limit::load`]; the old rates stay in force.
    pub fn reload(&self, files: &dyn Files) -> Result<usize, ParseError> {
        let mut fresh = self.clone();
        fresh.load(files)?;
        let rates = fresh.shared.loaded.unwrap_or_default();
        if let Some(limiter) = self.running() {
            limiter.reload(&rates).map_err(|what| ParseError::new(what, "the run continues with the old rates"))?;
        }
        Ok(rates.users().len())
    }

    /// The rate and the obtained and refused bytes of each user in the table of the current or last stage.
    pub fn each_user(&self) -> impl Iterator<Item = LimitedUser> + use<> {
        self.running().into_iter().flat_map(|limiter| limiter.each_user())
    }

    /// Results of the current or last stage.
    #[must_use]
    pub fn report(&self) -> Option<LimitReport> {
        let report = self.running()?.report();
        let burst = self.bucket().map(|bucket| bucket.burst()).unwrap_or_default();
        let marks = self.mode == Mode::Mark || self.colours.is_some();
        Some(LimitReport {
            key: self.key.to_string(),
            rate_bps: self.rate.bps(),
            burst_bytes: burst,
            mode: self.mode.name(),
            algorithm: self.algorithm.to_string(),
            yellow: report.yellow.filter(|_| self.colours.is_some()),
            marked: report.marked.filter(|_| marks),
            delayed: report.delayed.filter(|_| self.mode == Mode::Shape),
            ..report
        })
    }

    /// The parts of the stage for `workers` threads that share the table: one part per worker, and one part that
    /// collects. Without knowing `seed`, an attacker cannot choose users that share a row of the table.
    ///
    /// # Panics
    /// If the settings were not parsed from text and are incompatible, or with colours and more than one worker.
    #[must_use]
    pub fn parts<F: Frame>(&self, workers: usize, seed: u64) -> (Vec<Metering>, Settling<F>) {
        let bucket = self.bucket().expect("a bucket that was checked");
        let default = (self.unknown == Unknown::Default).then_some(bucket);
        let meter = self.algorithm.meter(workers.max(self.workers), self.users);
        // If a user were evicted before its second bucket is full, it would return with a full one.
        let idle = self.colours.map_or(self.idle, |colours| self.idle.max(colours.fills_in(&bucket)));
        let users = Users::in_memory(self.users, idle, default, seed, self.shared.advise);
        let limiter = Limiter::new(users, meter, self.key, self.mode == Mode::Shape);
        if let Some(rates) = &self.shared.loaded {
            limiter.users.give(rates).expect("a new table has room for as many as were counted");
        }
        let limiter = Arc::new(limiter);
        *self.shared.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(limiter.clone());
        assert!(workers == 1 || self.colours.is_none(), "second buckets are for one thread");
        let seconds = || {
            let colours = self.colours?;
            Some(Seconds::new(colours, colours.check(&bucket).expect("a marker that was checked"), self.users))
        };
        let meters = (0..workers).map(|_| Metering::new(self, limiter.clone(), seconds())).collect();
        (meters, Settling::new(self, limiter))
    }

    fn running(&self) -> Option<Arc<Limiter>> {
        self.shared.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Default maximum wait of a frame of a user with this rate.
fn patience(rate: BitRate) -> Span {
    let frames = u128::from(QUEUE_FRAMES * 1_518 * 8) * u128::from(units::PS_PER_S) / u128::from(rate.bps());
    QUEUE.max(Span::from_ps(u64::try_from(frames).unwrap_or(u64::MAX)))
}

impl Configuration for Limit {
    const KIND: Kind = Kind {
        name: Limit::NAME,
        grammar: "limit key dst-ip|src-ip|5-tuple|vlan|dst-prefix/N|FIELD[+FIELD…] rate RATE [burst SIZE] mode police|shape|mark \
                  [mark dscp YELLOW RED|ecn] [colours …] [queue TIME] [rates FILE] [unknown default|pass|drop] \
                  [users N] [idle TIME] [full drop|pass] [algorithm …] [device NAME] [workers N] [service TIME]",
        summary: "limits each user to a rate",
        example: "limit key dst-ip rate 1Mbps burst 3036B mode police users 1000",
    };

    fn parse(words: &[&str]) -> Result<Self, ParseError> {
        text::parse(words)
    }

    fn room(&self) -> u64 {
        if self.mode != Mode::Shape {
            return 0;
        }
        // The frames that the line delivers while one frame waits, plus the queue of one user in minimum-size frames. A
        // user above its rate thus fills its own queue first.
        let (patience, smallest) = (self.patience(), u128::from(FrameLen::MIN.bytes()) * 8);
        let bits = u128::from(self.rate.bps()) * u128::from(patience.as_ps()) / u128::from(units::PS_PER_S);
        frames_of_10g(patience).saturating_add(u64::try_from(bits / smallest).unwrap_or(u64::MAX))
    }

    fn notes(&self) -> Vec<String> {
        let note = "limit: no mode is written, so frames that exceed are dropped: write mode police, shape or mark";
        if self.mode_said { Vec::new() } else { vec![note.to_owned()] }
    }

    fn build<F: Frame + Send + 'static>(&self, mut random: Random) -> Box<dyn Stage<F>> {
        let (mut meters, settling) = self.parts(1, random.bits());
        let metering = meters.pop().expect("one was asked for");
        Box::new(stage::Limiting::new(self, metering, settling, random))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::print(self, f)
    }
}
