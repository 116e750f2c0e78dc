//! Bytes of frames, and of records written by programs in the kernel.

use crate::Outcome;
use engine::classes::{Classifier, Rule};
use packet::layers::{Layers, checksum_is_right, make_checksums_right, write_field};
use packet::{
    Headers, Identity, Key, MacAddr, Rewrite, Stamp, complete_checksum, flow_hash, packet_too_big, write_reply,
};
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::OnceLock;

thread_local! {
    /// Rules that test every kind of field.
    static CLASSIFIER: RefCell<Classifier> = RefCell::new({
        let texts = [
            "tcp dport 80 flags syn,!ack",
            "udp src 10.0.0.0/8 payload \"GET\"",
            "ip6 host 2001:db8::/32 or vlan 7 dscp ef",
            "bytes 40/f0 at 14 not arp",
            "payload 474554 at 3",
            "vxlan vni 7 inner tcp dport 80 or gtpu teid 5 innermost src 10.0.0.0/8",
            "mpls#2 label 1-9 not inner ip or inner payload \"GET\"",
        ];
        let rules: Vec<Rule> = texts.iter().map(|text| text.parse().expect("a rule")).collect();
        Classifier::new(&rules.iter().collect::<Vec<_>>()).expect("each rule can be reached")
    });
}

/// Every kind of `--rewrite`.
fn rewrites() -> &'static [Rewrite] {
    static REWRITES: OnceLock<Vec<Rewrite>> = OnceLock::new();
    REWRITES.get_or_init(|| {
        let texts = [
            "ip 10.0.0.0/8 > 192.168.0.0/16",
            "port 80 > 8080",
            "ttl 9",
            "vlan 7",
            "vlan none",
            "dmac 02:00:00:00:00:02",
            "inner src 0.0.0.0/0 > 10.0.0.1",
            "innermost dport 7",
            "mpls#2 label 5 > 6",
            "checksums right",
        ];
        texts.iter().map(|text| text.parse().expect("a change")).collect()
    })
}

/// Everything that reads or changes a received frame.
pub(crate) fn frame(input: &[u8]) -> Outcome {
    let headers = Headers::of(input);
    let identity = Identity::of(input);
    let hash = flow_hash(input);
    let stamp = Stamp::find(input);
    let class = CLASSIFIER.with_borrow_mut(|classifier| classifier.class(input));
    let mut reply = Vec::new();
    let answered = write_reply(input, |_: IpAddr, _| Some(MacAddr([2, 0, 0, 0, 0, 1])), &mut reply);
    let big = packet_too_big(input, 1280, &mut reply);
    assert!(reply.len() <= input.len() + 1500, "an answer of {} B", reply.len());
    if let Some(headers) = &headers {
        for key in
            ["src", "dst", "sport", "dport", "vlan", "dscp", "ttl", "proto"].iter().filter_map(|name| Key::named(name))
        {
            if let Some(site) = key.site(input, headers) {
                // Writing a field's own value must not change the frame.
                let mut same = input.to_vec();
                site.write(&mut same, site.read(input));
                assert_eq!(same, input, "{}", key.name());
            }
        }
        if let Some(payload) = headers.payload(input) {
            assert!(payload.end <= input.len());
        }
    }
    let mut changed = input.to_vec();
    complete_checksum(&mut changed);
    assert_eq!(changed.len(), input.len());
    for rewrite in rewrites() {
        rewrite.apply(&mut changed);
        assert!(changed.len() <= input.len() + 4, "{rewrite}");
    }
    let known = headers.is_some_and(|headers| headers.ip.is_some());
    if !known {
        return Outcome::Refused;
    }
    Outcome::of(&(hash, class, identity.is_some(), stamp.is_some(), answered.is_some(), big))
}

/// The layers of a frame: each field, and all checksums.
pub(crate) fn layers(input: &[u8]) -> Outcome {
    let found = Layers::of(input);
    let mut frame = input.to_vec();
    for (of, layer) in found.all().iter().enumerate() {
        assert!(layer.start < layer.content && layer.content <= layer.end && layer.end as usize <= input.len());
        for field in layer.kind.description().fields {
            if let Some(value) = layer.value(field, input) {
                assert!(write_field(&mut frame, &found, of, field, value), "{}", field.name);
                assert_eq!(frame, input, "{} is written with its own value", field.name);
            }
        }
    }
    make_checksums_right(&mut frame, &found);
    for of in 0..found.all().len() {
        assert_ne!(checksum_is_right(&frame, &found, of), Some(false), "layer {of}");
    }
    match found.all() {
        [] => Outcome::Refused,
        all => Outcome::of(&(all.iter().map(|layer| layer.kind).collect::<Vec<_>>(), found.deepest())),
    }
}

/// Records of frames as written by the kernel programs. The first byte is the number of events.
pub(crate) fn record(input: &[u8]) -> Outcome {
    let Some((events, bytes)) = input.split_first() else { return Outcome::Refused };
    let events = usize::from(*events) % (slice::MOST_EVENTS + 1);
    match slice::Record::read(bytes, events) {
        None => Outcome::Refused,
        Some(record) => {
            let _ = (record.matched(), record.whole());
            assert!(record.stamps.windows(2).all(|pair| pair[0].at <= pair[1].at), "stamps in order");
            Outcome::of(&(record.stamps.len(), record.flow.protocol))
        }
    }
}
