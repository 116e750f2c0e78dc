use crate::books::Tally;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a stage `limit` did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LimitReport {
    /// What frames of one user have in common.
    pub key: String,
    /// The rate of users whose own is not given.
    pub rate_bps: u64,
    /// Bytes of their bucket.
    pub burst_bytes: u64,
    /// What becomes of frames that exceed.
    pub mode: &'static str,
    /// The scheme.
    pub algorithm: String,
    /// Frames within their user's rate and burst; with colours the green ones.
    pub conforming: Tally,
    /// Frames beyond it, whatever became of them.
    pub exceeding: Tally,
    /// With colours, the yellow ones among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yellow: Option<Tally>,
    /// Frames that were marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marked: Option<u64>,
    /// Frames that had to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed: Option<u64>,
    /// Frames that belong to no user, as ARP where the key is an address; they pass.
    pub without_key: u64,
    /// Frames of users that have no rate, or no room, and passed unmetered.
    pub unmetered: u64,
    /// The table of users.
    pub users: UserTable,
    /// Obtained ÷ asked by length of window: users that were held back in a window and in the one before.
    pub error: BTreeMap<&'static str, LimitWindow>,
    /// Users that are watched for `error`, at most.
    pub watched: usize,
    /// The users who sent most, those reclaimed left out.
    pub talkers: Vec<LimitedUser>,
    /// What workers did, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerLoad>,
    /// Frames that were dropped before a worker was chosen, since the event device was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undealt: Option<u64>,
}

/// The table of users.
#[derive(Clone, Debug, Default, Serialize)]
pub struct UserTable {
    /// Users that it has room for.
    pub capacity: usize,
    /// Users that are in it.
    pub present: u64,
    /// Users that came.
    pub created: u64,
    /// Users that made room.
    pub reclaimed: u64,
    /// Frames whose user found no room.
    pub refused: u64,
    /// Memory, taken at once.
    pub bytes_per_user: usize,
    /// Times that rates were given again during the run.
    pub reloads: u64,
}

/// Obtained ÷ asked over windows of one length.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LimitWindow {
    /// Windows of users.
    pub windows: u64,
    /// Least.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// Largest.
    pub max: f64,
    /// 99th percentile of |obtained ÷ asked − 1|.
    pub p99_error: f64,
    /// Largest |obtained ÷ asked − 1|.
    pub worst_error: f64,
}

/// What one user sent and got.
#[derive(Clone, Debug, Serialize)]
pub struct LimitedUser {
    /// Who.
    pub user: String,
    /// Its rate.
    pub rate_bps: u64,
    /// Bytes that passed, as the rate counts them.
    pub passed_bytes: u64,
    /// Bytes that exceeded, likewise.
    pub exceeded_bytes: u64,
}

/// What one worker did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WorkerLoad {
    /// Frames that were dealt to it.
    pub frames: u64,
    /// Of them those that exceeded.
    pub exceeded: u64,
    /// Of them those that it had no time for.
    pub overrun: u64,
}
