//! Cost of classifying a frame, by number of rules. Prints medians of several rounds; nothing here passes or fails.

use engine::classes::{Classifier, Rule};
use packet::Protocol;
use packet::layers::{FieldPath, LayerKind, Layers, stack, write_field};
use std::error::Error;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

const ROUNDS: usize = 9;
const FRAMES: u32 = 4_096;

/// A kind of rule: the text of rule number `i`, and the destination of a frame that matches it.
type Kind = (&'static str, fn(u32) -> String, fn(u32) -> (Ipv4Addr, u16));

fn main() -> Result<(), Box<dyn Error>> {
    let kinds: [Kind; 4] = [
        ("udp dport N", |i| format!("udp dport {}", 1_000 + i), |i| (Ipv4Addr::new(10, 0, 0, 1), 1_000 + i as u16)),
        (
            "dst N/24",
            |i| format!("dst {}/24", Ipv4Addr::from(0x0a00_0000 | i << 8)),
            |i| (Ipv4Addr::from(0x0a00_0001 | i << 8), 9),
        ),
        (
            "udp src 10.0.0.0/8 dst N/24 dport N-N+9",
            |i| format!("udp src 10.0.0.0/8 dst {}/24 dport {}-{}", Ipv4Addr::from(0x0a00_0000 | i << 8), i, i + 9),
            |i| (Ipv4Addr::from(0x0a00_0001 | i << 8), i as u16 + 5),
        ),
        (
            "udp dst N payload \"user N\"",
            |i| format!("udp dst {} payload \"user{i:05}\"", Ipv4Addr::from(0x0a00_0001 | i << 8)),
            |i| (Ipv4Addr::from(0x0a00_0001 | i << 8), 9),
        ),
    ];
    println!("classes, ns per frame of 128 B, medians of {ROUNDS} rounds of {FRAMES} frames");
    println!("  {:<50} {:>8} {:>8} {:>8} {:>8}", "every rule like", 1, 10, 1_000, 10_000);
    for (name, rule, target) in kinds {
        let mut hits = Vec::new();
        let mut misses = Vec::new();
        for count in [1, 10, 1_000, 10_000] {
            let rules: Vec<Rule> = (0..count).map(|i| rule(i).parse()).collect::<Result<_, _>>()?;
            let classifier = Classifier::new(&rules.iter().collect::<Vec<_>>()).map_err(|bad| format!("{bad:?}"))?;
            let hit = |i: u32| {
                let number = i.wrapping_mul(2_654_435_761) % count;
                (target(number), Some(number))
            };
            hits.push(measure(classifier.clone(), count, hit)?);
            misses.push(measure(classifier, count, |_| ((Ipv4Addr::new(192, 168, 0, 1), 65_000), None))?);
        }
        row(&format!("{name}, found"), &hits);
        row(&format!("{name}, not found"), &misses);
    }
    tunnels()
}

/// The same for tunnelled frames: the fields that a rule tests, and the frame that matches rule number `i`.
fn tunnels() -> Result<(), Box<dyn Error>> {
    use LayerKind::{Ethernet, Ipv4, Tcp, Udp, Vxlan};
    let frame = stack(&[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Tcp], &[0; 20])?;
    let plain = stack(&[Ethernet, Ipv4, Udp], &[0; 66])?;
    println!("  {:<50} {:>8} {:>8} {:>8} {:>8}", "in VXLAN, every rule like", 1, 10, 1_000, 10_000);
    let rules: [(&str, &[&str], &[u8]); 5] = [
        ("udp sport N", &["udp sport"], &frame),
        ("vxlan vni N", &["vxlan vni"], &frame),
        ("inner tcp dport N", &["inner dport"], &frame),
        ("vxlan vni N inner dst N tcp dport N", &["vxlan vni", "inner dst", "inner dport"], &frame),
        ("ip ttl 64 udp dport N, without a tunnel", &["udp dport"], &plain),
    ];
    for (name, paths, frame) in rules {
        let mut row_of = Vec::new();
        for count in [1, 10, 1_000, 10_000] {
            let text = |i: u32| {
                name.split(',')
                    .next()
                    .unwrap_or_default()
                    .replace("dst N", &format!("dst {}", Ipv4Addr::from(i)))
                    .replace('N', &i.to_string())
            };
            let rules: Vec<Rule> = (0..count).map(|i| text(i).parse()).collect::<Result<_, _>>()?;
            let mut classifier =
                Classifier::new(&rules.iter().collect::<Vec<_>>()).map_err(|bad| format!("{name}: {bad:?}"))?;
            let mut frames = Vec::new();
            for i in 0..FRAMES {
                let number = i.wrapping_mul(2_654_435_761) % count;
                let mut made = frame.to_vec();
                for path in paths {
                    let words: Vec<&str> = path.split(' ').collect();
                    let (path, _) = FieldPath::read(path, &words)?;
                    let layers = Layers::of(&made);
                    let (of, field) = path.find(&made, &layers).ok_or("no such field")?;
                    write_field(&mut made, &layers, of, field, number.into());
                }
                if classifier.class(&made) != number as usize {
                    return Err(format!("{name}: frame {i} is not of class {number}").into());
                }
                frames.push(made);
            }
            row_of.push(time(&mut classifier, &frames));
        }
        row(name, &row_of);
    }
    Ok(())
}

fn row(name: &str, figures: &[f64]) {
    let figures: Vec<String> = figures.iter().map(|ns| format!("{ns:>8.1}")).collect();
    println!("  {name:<50} {}", figures.join(" "));
}

/// Median time per frame in ns. First checks that every frame is classified correctly.
fn measure(
    mut classifier: Classifier,
    rules: u32,
    frame: impl Fn(u32) -> ((Ipv4Addr, u16), Option<u32>),
) -> Result<f64, Box<dyn Error>> {
    let mut frames = Vec::new();
    for i in 0..FRAMES {
        let ((address, port), class) = frame(i);
        let mut bytes = Protocol::Udp.headers(false, 0);
        bytes.resize(124, 0);
        bytes[16..18].copy_from_slice(&110_u16.to_be_bytes());
        bytes[26..30].copy_from_slice(&[10, 0, 0, 9]);
        bytes[30..34].copy_from_slice(&address.octets());
        bytes[36..38].copy_from_slice(&port.to_be_bytes());
        bytes[38..40].copy_from_slice(&90_u16.to_be_bytes());
        if let Some(class) = class {
            bytes[60..69].copy_from_slice(format!("user{class:05}").as_bytes());
        }
        let found = classifier.class(&bytes);
        if found != class.unwrap_or(rules) as usize {
            return Err(format!("frame {i} is of class {found} and not {class:?}").into());
        }
        frames.push(bytes);
    }
    Ok(time(&mut classifier, &frames))
}

/// Median time per frame in ns.
fn time(classifier: &mut Classifier, frames: &[Vec<u8>]) -> f64 {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for frame in frames {
            black_box(classifier.class(black_box(frame)));
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(FRAMES));
    }
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}
