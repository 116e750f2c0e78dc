//! Frames of several groups of users, in order of arrival.

use engine::random::Random;
use packet::Frame;
use units::{FrameLen, Time};

/// Users that send in turn, all at the same mean rate.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// Address of the first user.
    pub(crate) first: u32,
    pub(crate) users: u32,
    /// Bits per second per user, with FCS.
    pub(crate) bps: u64,
}

/// A frame that holds only its headers.
#[derive(Clone)]
pub(crate) struct Prepared {
    bytes: [u8; 60],
    length: u32,
}

impl Frame for Prepared {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn length(&self) -> FrameLen {
        FrameLen::new(self.length)
    }

    fn copy(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn replace(&mut self, _: &[u8]) -> bool {
        false
    }
}

impl Prepared {
    /// A UDP/IPv4 frame to the address `to`, of `length` bytes with FCS.
    pub(crate) fn new(to: u32, length: u32) -> Self {
        let mut bytes = [0; 60];
        bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        bytes[12..16].copy_from_slice(&[0x08, 0, 0x45, 0]);
        bytes[16..18].copy_from_slice(&(length as u16 - 18).to_be_bytes());
        bytes[22..24].copy_from_slice(&[64, 17]);
        bytes[26..30].copy_from_slice(&[10, 0, 0, 1]);
        bytes[30..34].copy_from_slice(&to.to_be_bytes());
        Prepared { bytes, length }
    }

    /// A copy of the frame to another address.
    pub(crate) fn for_user(&self, to: u32) -> Self {
        let mut frame = self.clone();
        frame.bytes[30..34].copy_from_slice(&to.to_be_bytes());
        frame
    }

    pub(crate) fn to(&self) -> u32 {
        u32::from_be_bytes([self.bytes[30], self.bytes[31], self.bytes[32], self.bytes[33]])
    }
}

/// Traffic of all groups. Each group sends without gaps at the total rate of its users; sizes are uniform from 64 to
/// 1500 B.
pub(crate) struct Traffic {
    groups: Vec<(Group, u32, Time, u64)>,
    random: Random,
}

impl Traffic {
    pub(crate) fn new(groups: &[Group], seed: u64) -> Self {
        let groups = groups.iter().map(|group| (*group, 0, Time::ZERO, 0)).collect();
        Traffic { groups, random: Random::stream(seed, "traffic") }
    }

    /// The next frame and its arrival time.
    pub(crate) fn next(&mut self) -> (Time, Prepared) {
        let next = self.groups.iter_mut().min_by_key(|(_, _, at, _)| *at).expect("a group");
        let (group, turn, at, rest) = next;
        let length = 64 + self.random.below(1_437);
        let frame = (*at, Prepared::new(group.first + *turn, length as u32));
        *turn = (*turn + 1) % group.users;
        // Carries the remainder, so that the rate is exact.
        let rate = u128::from(group.bps) * u128::from(group.users);
        let due = u128::from(length) * 8 * u128::from(units::PS_PER_S) + u128::from(*rest);
        *at += units::Span::from_ps((due / rate) as u64);
        *rest = (due % rate) as u64;
        frame
    }
}
