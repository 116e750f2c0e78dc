//! The distribution of gaps as CSV.

/// The SVG drawing if fewer than two frames arrived.
pub(crate) const NO_GAPS: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"920\" height=\"500\"><desc>No gap: fewer than two frames arrived.</desc></svg>\n";

/// Formats a histogram of gaps as CSV. Each line has the smallest and the largest gap of a bucket in ns, the number of
/// gaps, their share, and the cumulative share.
pub(crate) fn distribution(buckets: &[(u64, u64, u64)]) -> String {
    let all = buckets.iter().map(|(.., gaps)| gaps).sum::<u64>().max(1) as f64;
    let mut text = "from_ns,to_ns,gaps,share,up_to\n".to_owned();
    let mut sum = 0;
    for (from, to, gaps) in buckets {
        sum += gaps;
        let ns = |ps: u64| ps as f64 / units::PS_PER_NS as f64;
        let (share, up_to) = (*gaps as f64 / all, sum as f64 / all);
        text.push_str(&format!("{},{},{gaps},{share},{up_to}\n", ns(*from), ns(*to)));
    }
    text
}
