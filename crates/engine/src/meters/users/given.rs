//! Changes users' rates while frames pass.

use super::{PINNED, Room, Users};
use crate::meters::gcra::{SIDE, VACANT, Word};
use crate::meters::{Moment, Rates};
use std::sync::atomic::Ordering;
use units::Time;

impl Users {
    /// Sets the rates of all listed users at once, under traffic. Each user keeps its debt. Users with an earlier
    /// configured rate that are not in `rates` return to the default; if there is none, they are removed.
    ///
    /// # Errors
    /// The users do not fit into the table, or rates changed too often: no rate changes. If only the rows of the index
    /// are crowded, some of the rates may have changed.
    pub fn give(&self, rates: &Rates) -> Result<(), String> {
        let users = rates.users();
        let at = Moment::of(Time::from_ps(self.latest.load(Ordering::Relaxed)));
        let mut room = self.room();
        let find = || users.iter().map(|user| self.find(user.key)).collect::<Vec<_>>();
        let mut known = find();
        let mut given = vec![false; self.slots.len()];
        for number in known.iter().flatten() {
            given[*number as usize] = true;
        }
        let leaves = |number: &u32| !given[*number as usize] && self.is_pinned(*number);
        let leaving: Vec<u32> = (0..room.unused).filter(leaves).collect();
        let fits = |room: &Room, known: &[Option<u32>]| {
            let leaving = if room.default.is_none() { leaving.len() } else { 0 };
            let places = room.free.len() + (self.slots.len() - room.unused as usize) + leaving;
            known.iter().filter(|number| number.is_none()).count() <= places
        };
        if !fits(&room, &known) {
            self.sweep(&mut room, self.capacity(), at.time());
            // The sweep may have evicted users of `rates`.
            known = find();
        }
        if !fits(&room, &known) {
            let (users, capacity) = (users.len(), self.capacity());
            return Err(format!("there is no room for {users} users in a table of {capacity}: give it more"));
        }
        self.name(&mut room, rates.buckets())?;
        let names: Vec<u32> = rates.buckets().iter().map(|bucket| room.names[bucket] | PINNED).collect();
        for number in leaving {
            match room.default {
                Some(name) => self.change(number, name, &at),
                // Charges may continue meanwhile: a late worker finds that the user has left.
                None => {
                    self.slots[number as usize].word.swap(VACANT, Ordering::AcqRel);
                    self.vacated(number);
                    room.free.push(number);
                }
            }
        }
        for (user, known) in users.iter().zip(known) {
            let name = names[user.bucket as usize];
            match known {
                Some(number) => self.change(number, name, &at),
                None => {
                    self.insert(&mut room, user.key, name, &at).map_err(|_| {
                        "the rows of the table are crowded, and some users have their new rates, others not: give it \
                         room for more users"
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Moves a user to another bucket. The caller must hold the lock.
    fn change(&self, number: u32, name: u32, at: &Moment) {
        let slot = &self.slots[number as usize];
        let mut word = slot.word.read();
        loop {
            if word == VACANT || slot.name(word) == name {
                return;
            }
            slot.buckets[usize::from(word & SIDE == 0)].store(name, Ordering::Release);
            let (Some(old), Some(new)) = (self.bucket(slot, word), self.bucket(slot, word ^ SIDE)) else { return };
            let owed = (word & !SIDE).saturating_sub(old.clock(at));
            let mut full = new.clock(at).saturating_add(new.convert(old, owed));
            // Waiting frames keep their departures, and later frames depart after the last of them.
            let last = (word & !SIDE).saturating_sub(old.depth());
            if last > old.clock(at) {
                full = full.max(new.clock(&Moment::of(old.when(last))) + new.depth());
            }
            // A debt of more than a year is capped, so that it is never mistaken for a vacant slot.
            let full = full.min(SIDE - 2);
            let next = (word & SIDE ^ SIDE) | full;
            match slot.word.replace(word, next) {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
    }
}
