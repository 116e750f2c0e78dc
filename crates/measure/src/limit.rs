use crate::frame_counters::Tally;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Report of a `limit` stage.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct LimitReport {
    /// What the frames of one user have in common.
    pub key: String,
    /// The rate of users without a configured rate.
    pub rate_bps: u64,
    /// Size of their bucket in bytes.
    pub burst_bytes: u64,
    /// What happens to frames that exceed.
    pub mode: &'static str,
    /// The scheme.
    pub algorithm: String,
    /// Frames within their user's rate and burst; with colours the green ones.
    pub conforming: Tally,
    /// Frames that exceed, whatever their fate.
    pub exceeding: Tally,
    /// With colours, the yellow ones of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yellow: Option<Tally>,
    /// Frames marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marked: Option<u64>,
    /// Frames that had to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed: Option<u64>,
    /// Frames without a user, such as ARP if the key is an address; they pass.
    pub without_key: u64,
    /// The same frames by protocol, for example `MPLS`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub without_key_by_type: BTreeMap<String, u64>,
    /// Frames dropped because they are longer than their user's bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longer_than_bucket: Option<LongerFrames>,
    /// TCP users whose frames a policer dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policed_tcp: Option<PolicedTcp>,
    /// Frames of users without a rate or without room, which passed unmetered.
    pub unmetered: u64,
    /// The table of users.
    pub users: UserTable,
    /// Obtained ÷ asked by window length, for users that were limited in a window and in the one before.
    #[schemars(with = "LimitWindows")]
    pub error: BTreeMap<&'static str, LimitWindow>,
    /// Number of users watched for `error`.
    pub watched: usize,
    /// The users with the most traffic, except reclaimed ones.
    pub talkers: Vec<LimitedUser>,
    /// Load of the workers, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerLoad>,
    /// Frames dropped before a worker was chosen, because the event device was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undealt: Option<u64>,
}

/// Frames that can never conform.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct LongerFrames {
    /// Number of frames.
    pub frames: u64,
    /// Length of the longest one in bytes, as the rate counts it.
    pub longest_bytes: u32,
}

/// TCP users policed at least 3 times, with at least 1 s from their first to their last drop. Figures cover that time.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct PolicedTcp {
    /// Number of users.
    pub users: u64,
    /// Those that obtained less than 80 % of their rate.
    pub below_80_percent: u64,
    /// The smallest obtained ÷ asked.
    pub min_ratio: f64,
}

/// The table of users.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct UserTable {
    /// Capacity in users.
    pub capacity: usize,
    /// Users in the table.
    pub present: u64,
    /// Users added.
    pub created: u64,
    /// Users evicted.
    pub reclaimed: u64,
    /// Frames whose user did not fit in the table.
    pub refused: u64,
    /// Memory per user of capacity, allocated at the start.
    pub user_bytes: usize,
    /// Rate changes during the run.
    pub reloads: u64,
}

/// The windows that `error` has, for the schema.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "the schema is derived from it")]
struct LimitWindows {
    /// Windows of 10 ms.
    #[schemars(rename = "10ms")]
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<LimitWindow>,
    /// Windows of 100 ms.
    #[schemars(rename = "100ms")]
    #[serde(skip_serializing_if = "Option::is_none")]
    medium: Option<LimitWindow>,
    /// Windows of 1 s.
    #[schemars(rename = "1s")]
    #[serde(skip_serializing_if = "Option::is_none")]
    long: Option<LimitWindow>,
}

/// Obtained ÷ asked over windows of one length.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct LimitWindow {
    /// Number of windows, over all users.
    pub windows: u64,
    /// Smallest.
    pub min_ratio: f64,
    /// Median.
    pub p50_ratio: f64,
    /// Largest.
    pub max_ratio: f64,
    /// 99th percentile of |obtained ÷ asked − 1|.
    pub p99_error_ratio: f64,
    /// Largest |obtained ÷ asked − 1|.
    pub worst_error_ratio: f64,
    /// Largest share of a window that one frame takes. An error up to this size only means that a frame was counted in
    /// one window instead of the next.
    pub one_frame_ratio: f64,
}

/// Traffic of one user.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct LimitedUser {
    /// The user.
    pub user: String,
    /// The rate.
    pub rate_bps: u64,
    /// Bytes that passed, in the layer of the rate.
    pub passed_bytes: u64,
    /// Bytes that exceeded, in the layer of the rate.
    pub exceeded_bytes: u64,
}

/// Load of one worker.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct WorkerLoad {
    /// Frames received.
    pub frames: u64,
    /// The part of these that exceeded.
    pub exceeded: u64,
    /// The part of these that was dropped because the worker was busy.
    pub overrun: u64,
}
