//! Whether a segment's buckets are what they should be.

use super::{BUCKET_ENTRIES, Segment};
use crate::error::Faults;
use crate::index::{Keys, Probe};

impl Segment {
    /// Visits every entry; tells of those whose row has no key, or one that belongs elsewhere.
    pub(in crate::index) fn check(
        &self,
        keys: &impl Keys,
        is_own: impl Fn(Probe) -> bool,
        faults: &mut Faults,
        mut visit: impl FnMut(u32),
    ) {
        let buckets = self.buckets;
        let mut displaced = vec![0_u16; buckets.count as usize];
        for number in 0..buckets.count {
            let bucket = buckets.bucket(number);
            for entry in (0..BUCKET_ENTRIES).filter(|&entry| bucket.tag(entry) != 0) {
                let slot = bucket.slot(entry);
                visit(slot);
                let place = || format!("index entry of slot {slot}");
                let Some(probe) = keys.probe(slot) else {
                    faults.note(place(), "there is no such slot");
                    continue;
                };
                if probe.tag() != bucket.tag(entry) || !is_own(probe) {
                    faults.note(place(), "the row there has another key");
                    continue;
                }
                let home = buckets.home(probe.place(), self.range.depth);
                let distance = if number >= home {
                    number - home
                } else {
                    number + buckets.count - home
                };
                if distance > u32::from(buckets.bucket(home).reach()) {
                    faults.note(place(), "it lies where searches do not come");
                } else if distance > 0 {
                    let displaced = &mut displaced[home as usize];
                    *displaced = displaced.saturating_add(1);
                }
            }
        }
        for (number, &counted) in (0_u32..).zip(&displaced) {
            let bucket = buckets.bucket(number);
            if bucket.displaced() != counted {
                let place = format!("index bucket {number} at {}", self.extent.offset);
                let said = bucket.displaced();
                faults.note(
                    place,
                    format!("it counts {said} displaced keys of {counted}"),
                );
            }
        }
    }
}
