//! Formats figures for people, each in a suitable unit.

/// A time in nanoseconds, in a suitable unit.
#[must_use]
pub fn time(ns: f64) -> String {
    let size = ns.abs();
    let (scale, unit, digits) = match size {
        s if s >= 1e9 => (1e9, "s", 6),
        s if s >= 1e6 => (1e6, "ms", 6),
        s if s >= 1e3 => (1e3, "µs", 6),
        _ => (1.0, "ns", 3),
    };
    format!("{} {unit}", trimmed(ns / scale, digits))
}

/// A bit rate in a suitable unit.
#[must_use]
pub fn bits(bps: f64) -> String {
    let (scale, unit) = match bps.abs() {
        b if b >= 1e9 => (1e9, "Gbit/s"),
        b if b >= 1e6 => (1e6, "Mbit/s"),
        b if b >= 1e3 => (1e3, "kbit/s"),
        _ => (1.0, "bit/s"),
    };
    format!("{} {unit}", trimmed(bps / scale, 6))
}

/// A frame rate in a suitable unit, with six decimals.
#[must_use]
pub fn frames_per_second(fps: f64) -> String {
    let (scale, unit) = frames_unit(fps);
    format!("{} {unit}", trimmed(fps / scale, 6))
}

/// A suitable unit for a frame rate: its size in frames per second, and its name.
#[must_use]
pub fn frames_unit(fps: f64) -> (f64, &'static str) {
    match fps.abs() {
        f if f >= 1e6 => (1e6, "Mpps"),
        f if f >= 1e3 => (1e3, "kpps"),
        _ => (1.0, "pps"),
    }
}

fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A count with digits in groups of three, such as 100 000.
#[must_use]
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// Frames per second with a resolution of one thousandth, as rates are set.
#[must_use]
pub fn frame_rate(rate: f64) -> String {
    let millis = (rate * 1e3).round() as u64;
    format!("{}.{:03}", thousands(millis / 1_000), millis % 1_000)
}

/// A count and its noun: 1 frame, 2 frames. The plural must end in s.
#[must_use]
pub fn counted(n: u64, one: &str) -> String {
    format!("{} {one}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// A share as a percentage. A share that is almost 0 or 1 does not print as 0 % or 100 %.
#[must_use]
pub fn share(of_one: f64) -> String {
    let percent = of_one * 100.0;
    match format!("{percent:.2}").as_str() {
        "100.00" if of_one < 1.0 => "99.99 %".to_owned(),
        "0.00" if of_one > 0.0 => "0.01 %".to_owned(),
        rounded => format!("{rounded} %"),
    }
}

/// A time in ns with four digits.
#[must_use]
pub fn brief(ns: f64) -> String {
    time(digits(ns, 4))
}

/// A value rounded to this many digits.
#[must_use]
pub fn digits(value: f64, digits: usize) -> f64 {
    let decimals = digits.saturating_sub(1);
    format!("{value:.decimals$e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_figures_in_suitable_units() {
        assert_eq!(thousands(100_000), "100 000");
        assert_eq!(thousands(1), "1");
        assert_eq!([0, 1, 2, 1_001].map(|n| counted(n, "frame")), ["0 frames", "1 frame", "2 frames", "1 001 frames"]);
        assert_eq!(time(10_000.0), "10 µs");
        assert_eq!(time(0.8), "0.8 ns");
        assert_eq!(time(-0.0001), "0 ns");
        assert_eq!(bits(3.7e9), "3.7 Gbit/s");
    }

    #[test]
    fn almost_all_does_not_print_as_all() {
        assert_eq!(share(1.0), "100.00 %");
        assert_eq!(share(0.999_999_9), "99.99 %");
        assert_eq!(share(0.000_000_1), "0.01 %");
        assert_eq!(share(0.0), "0.00 %");
        assert_eq!(share(0.5), "50.00 %");
    }

    #[test]
    fn rounds_times_for_display() {
        assert_eq!(brief(28_115_357.0), "28.12 ms");
        assert_eq!(brief(0.0), "0 ns");
        assert!((digits(1_266.468_95, 6) - 1_266.47).abs() < 1e-9);
    }
}
