use super::*;
use proptest::prelude::*;

/// A stack that begins with Ethernet. Each choice selects one of the protocols that the layer below can carry.
fn chain(choices: &[u8]) -> Vec<LayerKind> {
    let mut kinds = vec![LayerKind::Ethernet];
    for choice in choices {
        let below = kinds[kinds.len() - 1];
        let carries =
            |kind: &LayerKind| (below.description().announce)(&mut below.description().header.to_vec(), *kind);
        let able: Vec<LayerKind> = LayerKind::ALL.iter().copied().filter(carries).collect();
        match able.get(usize::from(*choice) % able.len().max(1)) {
            Some(kind) => kinds.push(*kind),
            None => break,
        }
    }
    kinds
}

fn kinds(layers: &Layers) -> Vec<LayerKind> {
    layers.all().iter().map(|layer| layer.kind).collect()
}

/// Fields whose values do not change what follows. After the last label, the first bits of an address do.
fn is_free(kinds: &[LayerKind], of: usize, field: &Field) -> bool {
    let behind_label = of > 0 && kinds[of - 1] == LayerKind::Mpls && field.name == "dmac";
    let ports = kinds[of] == LayerKind::Udp && matches!(field.name, "sport" | "dport");
    let route = matches!(field.name, "left" | "spi") || kinds[of] == LayerKind::L2tp3;
    field.role == Role::Plain
        && !behind_label
        && !ports
        && !route
        && field.offset(kinds[of].description().header).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// Builds a stack, changes every field, and parses it back.
    #[test]
    fn stacks_parse_back(
        choices in prop::collection::vec(any::<u8>(), 0..14),
        payload in prop::collection::vec(any::<u8>(), 0..120),
        seed: u64,
    ) {
        let expected = chain(&choices);
        // What follows an L2TP session is recognised by its bytes.
        prop_assume!(expected[expected.len() - 1] != LayerKind::L2tp3);
        let mut frame = stack(&expected, &payload).expect("each carries the next");
        let layers = Layers::of(&frame).first(expected.len());
        prop_assert_eq!(&kinds(&layers), &expected);
        let last = layers.all()[expected.len() - 1];
        // The last bytes of RoCE are its ICRC.
        let kept = payload.len() - if last.kind == LayerKind::Roce { ICRC.min(payload.len()) } else { 0 };
        prop_assert_eq!(&last.content(&frame)[..kept], &payload[..kept]);
        let mut state = seed | 1;
        for of in 0..expected.len() {
            prop_assert!(layers.all()[of].complete && !layers.all()[of].fragment);
            prop_assert_ne!(checksum_is_right(&frame, &layers, of), Some(false), "{:?} of {:?}", expected[of], expected);
            for field in expected[of].description().fields.iter().filter(|field| is_free(&expected, of, field)) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let wide = u128::from(state) << 64 | u128::from(state.rotate_left(20));
                let value = wide >> (128 - u32::from(field.width()));
                prop_assert!(write_field(&mut frame, &layers, of, field, value));
                prop_assert_eq!(layers.all()[of].value(field, &frame), Some(value), "{} of {:?}", field.name, expected[of]);
                let again = Layers::of(&frame);
                prop_assert!(kinds(&again).starts_with(&expected), "{} of {expected:?}", field.name);
                for sum in 0..expected.len() {
                    let right = checksum_is_right(&frame, &again, sum);
                    prop_assert_ne!(right, Some(false), "{:?} after {} of {:?} in {:?}", expected[sum], field.name, expected[of], expected);
                }
            }
        }
        // Wrong checksums stay wrong, until they are corrected.
        let sums: Vec<usize> = (0..expected.len()).filter(|of| checksum_is_right(&frame, &layers, *of).is_some()).collect();
        let right = frame.clone();
        for of in &sums {
            let at = match expected[*of] {
                LayerKind::Roce => layers.all()[*of].end as usize - 1,
                kind => layers.all()[*of].start as usize + kind.description().checksum.expect("one").at,
            };
            frame[at] ^= 0x55;
        }
        make_checksums_right(&mut frame, &layers);
        prop_assert_eq!(&frame, &right);
    }

    /// The fast path for ordinary frames finds the same outer packet as the walk.
    #[test]
    fn headers_agree_with_the_walk(choices in prop::collection::vec(any::<u8>(), 0..8)) {
        let expected = chain(&choices);
        let frame = stack(&expected, b"a payload").expect("each carries the next");
        let headers = crate::Headers::of(&frame).expect("an Ethernet header");
        let tags = expected[1..].iter().take_while(|kind| **kind == LayerKind::Vlan).count();
        if let (Some(ip), Some(layer)) = (headers.ip, Layers::of(&frame).all().get(1 + tags)) {
            prop_assert_eq!((ip.start, ip.end), (layer.start as usize, layer.end as usize));
            let expected = if ip.version == 4 { LayerKind::Ipv4 } else { LayerKind::Ipv6 };
            prop_assert_eq!(layer.kind, expected);
        }
    }

    /// Walks truncated frames and random bytes without a panic. All that it finds lies in the frame.
    #[test]
    fn cut_and_odd_frames_do_no_harm(
        choices in prop::collection::vec(any::<u8>(), 0..14),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut frame = stack(&chain(&choices), b"payload").expect("each carries the next");
        for (at, byte) in noise {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        for length in 0..=frame.len() {
            let mut cut = frame[..length].to_vec();
            let layers = Layers::of(&cut);
            for (of, layer) in layers.all().iter().enumerate() {
                prop_assert!(layer.start < layer.content && layer.content <= layer.end && layer.end as usize <= length);
                for field in layer.kind.description().fields {
                    if let Some(value) = layer.value(field, &cut) {
                        let before = cut.clone();
                        prop_assert!(write_field(&mut cut, &layers, of, field, value));
                        prop_assert_eq!(&before, &cut, "written with its own value");
                    }
                }
            }
            make_checksums_right(&mut cut, &layers);
        }
    }
}

#[test]
fn names_are_unique_and_defaults_are_read() {
    for kind in LayerKind::ALL {
        let description = kind.description();
        assert_eq!(LayerKind::named(description.name), Some(*kind));
        for alias in description.aliases {
            assert_eq!(LayerKind::named(alias), Some(*kind), "{alias}");
        }
        for field in description.fields {
            assert_eq!(kind.field(field.name).map(|found| found.about), Some(field.about), "{} twice", field.name);
        }
        let mut bytes = description.header.to_vec();
        bytes.resize(bytes.len() + 64, 0);
        let header = (description.read)(&bytes).expect(description.name);
        assert_eq!(header.length, description.header.len(), "{}", description.name);
    }
}

#[test]
fn deep_stacks_end() {
    let mut frame = vec![2; 12];
    frame.extend([0x88, 0x47]);
    for _ in 0..60 {
        frame.extend([0, 1, 0, 64]);
    }
    frame.extend([0x45; 60]);
    let layers = Layers::of(&frame);
    assert_eq!((layers.all().len(), layers.rest()), (MOST_LAYERS, Rest::TooDeep));
    // Destination options that announce destination options.
    let mut frame =
        stack(&[LayerKind::Ethernet, LayerKind::Ipv6], &[60, 0, 1, 4, 0, 0, 0, 0].repeat(1_000)).expect("IPv6");
    frame[20] = 60;
    let layers = Layers::of(&frame);
    assert_eq!((layers.all().len(), layers.rest()), (MOST_LAYERS, Rest::TooDeep));
    make_checksums_right(&mut frame, &layers);
}

#[test]
fn levels_count_tunnels() {
    use LayerKind::{Ethernet, Gre, Ipv4, Ipv6, Mpls, Pppoe, Tcp, Udp, Vlan, Vxlan};
    for (kinds, levels) in [
        (&[Ethernet, Vlan, Mpls, Ipv4, Udp][..], &[0, 0, 0, 0, 0][..]),
        (&[Ethernet, Pppoe, Ipv6, Tcp], &[0, 0, 0, 0]),
        (&[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Vlan, Ipv4, Tcp], &[0, 0, 0, 0, 1, 1, 1, 1]),
        (&[Ethernet, Ipv4, Gre, Ipv6, Ipv4, Tcp], &[0, 0, 0, 1, 2, 2]),
        (&[Ethernet, Mpls, Ethernet, Ipv4, Tcp], &[0, 0, 1, 1, 1]),
    ] {
        let frame = stack(kinds, b"x").expect("a stack");
        let found: Vec<u8> = Layers::of(&frame).all().iter().map(|layer| layer.level).collect();
        assert_eq!(found, levels, "{kinds:?}");
    }
    assert_eq!(stack(&[Ethernet, Udp], b"").map_err(|error| error.to_string()), Err("eth does not carry udp".into()));
}

#[test]
fn wrong_checksums_stay_wrong_when_a_field_changes() {
    use LayerKind::{Ethernet, Ipv4, Sctp, Udp, Vxlan};
    for inner in [Udp, Sctp] {
        let mut frame = stack(&[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, inner], b"hello").expect("a stack");
        let layers = Layers::of(&frame);
        let last = layers.all().len() - 1;
        frame[layers.all()[last].start as usize + inner.description().checksum.expect("one").at] ^= 1;
        let dport = inner.field("dport").expect("a port");
        assert!(write_field(&mut frame, &layers, last, dport, 99));
        assert_eq!(checksum_is_right(&frame, &layers, last), Some(false));
        make_checksums_right(&mut frame, &layers);
        assert_eq!(checksum_is_right(&frame, &layers, last), Some(true));
    }
}

/// Segments left selects the address that the sum covers: the IP destination or the last address of the route.
#[test]
fn checksums_follow_the_final_destination() {
    use LayerKind::{Ethernet, Ipv6, Routing, Srv6, Tcp, Udp};
    for route in [Routing, Srv6] {
        for transport in [Udp, Tcp] {
            let mut frame = stack(&[Ethernet, Ipv6, route, transport], b"hello").expect("a stack");
            let layers = Layers::of(&frame);
            let named = |of: LayerKind, name: &str| of.field(name).expect("a field");
            let last = named(route, if route == Srv6 { "segment" } else { "last" });
            for (of, field, value) in [
                (1, named(Ipv6, "dst"), 0x2001_0db8 << 96 | 1),
                (2, last, 0x2001_0db8 << 96 | 0x77_0000),
                (2, named(route, "left"), 1),
                (1, named(Ipv6, "dst"), 9),
                (2, last, 0xfe80 << 112 | 5),
                (2, named(route, "left"), 0),
            ] {
                assert!(write_field(&mut frame, &layers, of, field, value));
                assert_eq!(checksum_is_right(&frame, &layers, 3), Some(true), "{route:?} {transport:?} {}", field.name);
            }
            // A wrong checksum stays wrong by the same amount.
            let at = layers.all()[3].start as usize + transport.description().checksum.expect("one").at;
            let right = u16::from_be_bytes([frame[at], frame[at + 1]]);
            frame[at] ^= 0x55;
            for left in [1, 0] {
                assert!(write_field(&mut frame, &layers, 2, named(route, "left"), left));
                assert_eq!(checksum_is_right(&frame, &layers, 3), Some(false));
            }
            assert_eq!(u16::from_be_bytes([frame[at] ^ 0x55, frame[at + 1]]), right);
        }
    }
}

/// RoCEv2 frames from Scapy 2.8, and changes of them.
#[test]
fn invariant_crc_agrees_with_scapy_and_follows_changes() {
    for frame in [
        "020000000002020000000001080045b90034000700003f1166f70a0000010a000002c00012b7002011a80400ffff000000110012\
         34566e65746c61746865e2293ffd",
        "02000000000202000000000186dd62e123450020110920010db800000000000000000000000120010db80000000000000000000000\
         02c00012b70020c8540400ffff00000011001234566e65746c61746865ac2b77dc",
    ] {
        let frame: Vec<u8> = (0..frame.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&frame[at..at + 2], 16).expect("hex digits"))
            .collect();
        let layers = Layers::of(&frame);
        let of = layers.all().iter().position(|layer| layer.kind == LayerKind::Roce).expect("RoCE");
        assert_eq!(checksum_is_right(&frame, &layers, of), Some(true));
        let crc = |frame: &[u8]| frame[frame.len() - 4..].to_vec();
        for (name, covered) in
            [("ttl", false), ("dscp", false), ("src", true), ("dport", true), ("psn", true), ("fecn", false)]
        {
            let (path, _) = FieldPath::read(name, &[name]).expect("a path");
            let (at, field) = path.find(&frame, &layers).expect("a field");
            let mut changed = frame.clone();
            assert!(write_field(&mut changed, &layers, at, field, 1));
            let now = Layers::of(&changed);
            if name != "dport" {
                assert_eq!(checksum_is_right(&changed, &now, of), Some(true), "{name}");
            }
            assert_eq!(checksum_is_right(&changed, &now, of - 1), Some(true), "UDP after a change of {name}");
            assert_eq!(crc(&changed) != crc(&frame), covered, "{name}");
            // A wrong CRC stays wrong.
            let mut wrong = frame.clone();
            let last = wrong.len() - 1;
            wrong[last] ^= 1;
            assert_eq!(checksum_is_right(&wrong, &layers, of), Some(false));
            assert!(write_field(&mut wrong, &layers, at, field, 1));
            assert_eq!(crc(&wrong)[3], frame[last] ^ 1, "{name}");
            make_checksums_right(&mut wrong, &layers);
            assert_eq!(crc(&wrong), crc(&changed), "{name}");
        }
    }
}

/// Checks what CONTRIBUTING says about a new protocol, with the one added last: rules, rewriting, keys and streams have
/// no line about it.
#[test]
fn a_protocol_is_one_file_and_one_line() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open = vec![crates.join("packet/src"), crates.join("engine/src"), crates.join("scenario/src")];
    open.extend([crates.join("sim/src"), crates.join("cli/src"), crates.join("packet/tests")]);
    let mut texts = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(path.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("layers/tests.rs") {
            texts.push((path.clone(), std::fs::read_to_string(path).expect("UTF-8")));
        }
    }
    let names = |text: &str| text.split(|c: char| !c.is_alphanumeric()).filter(|word| *word == "Bfd").count();
    let with: Vec<_> = texts.iter().filter(|(_, text)| names(text) > 0).collect();
    assert!(texts.iter().any(|(path, _)| path.ends_with("layers/bfd.rs")));
    assert!(
        with.len() == 1 && with[0].0.ends_with("layers/mod.rs") && names(&with[0].1) == 1,
        "{:?}",
        with.iter().map(|(path, _)| path).collect::<Vec<_>>()
    );
}
