//! The time of reads, from what a probe found: what fragments cost, and what defragmenting gains.
//!
//! ```text
//! time = alone(longest request) + the larger of
//!          √(what the busiest unit has to do beyond that request ² + (Σ further(request), of the others)²)
//!          bytes beyond one block ÷ bandwidth
//! ```
//!
//! That is the time of one read whose requests all go out together, on a drive that does nothing else. What a
//! request takes alone and by how much it delays others is measured at some lengths, and follows for those
//! in between.
//!
//! Where pages and channels are known ([`Inner`]), a read of several requests follows them instead (module `flow`);
//! by how much reads at random places took longer than that is added.

use serde::{Deserialize, Serialize};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::{
    BLOCK, CannotTell, Findings, Inner, KINDS, Longer, Placement, USUAL_READ, flow::Flow, speed,
};
use crate::{
    draw::Draw,
    layout::{DeviceTimes, Extent, ExtentFlags, Layout},
};

/// Reads by which a time is found that only their sum tells.
const SIMULATED: usize = 400;

/// Longer reads are not followed through the drive: its bandwidth tells.
const FOLLOWED: u64 = 32 << 20;

/// Where reads at random places take longer or shorter by this part, requests do not go through the drive as it
/// is followed.
const REFUTES: f64 = 0.3;

/// A longer time is none of a drive.
const LONGEST_NS: f64 = 3.6e12;

/// The quantities from which the times of reads follow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadModel {
    /// How data lies on the units.
    pub placement: Placement,
    /// A read of a block keeps its unit busy, in nanoseconds.
    pub service_ns: f64,
    /// Each further byte does, in nanoseconds.
    pub per_byte_ns: f64,
    /// Requests of a block, and of longer lengths.
    requests: [RequestTime; KINDS + 1],
    /// Bytes in a nanosecond.
    pub bytes_per_ns: f64,
    /// One contiguous read of [`USUAL_READ`], in nanoseconds: as measured, not by this model.
    pub contiguous_ns: f64,
    /// The way of requests, where pages and channels are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flow: Option<Flow>,
}

/// The times of requests of one length, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct RequestTime {
    len: Bytes,
    alone_ns: f64,
    further_ns: f64,
    /// At random places they take so much longer than their way does.
    #[serde(default)]
    later_ns: f64,
}

impl ReadModel {
    /// The model of these findings.
    ///
    /// # Errors
    ///
    /// A part of it cannot be told.
    pub fn of(findings: &Findings) -> Result<Self, CannotTell> {
        let ns = |told: &super::Told<units::Nanos>| told.map(|told| told.value.0 as f64);
        // The reason that comes first: the others follow from it.
        let placement = findings.placement?.value;
        let block = RequestTime {
            len: Bytes(BLOCK),
            alone_ns: ns(&findings.latency)?,
            further_ns: ns(&findings.per_request)?,
            later_ns: 0.0,
        };
        let longer = findings.longer?.value;
        let request = |longer: &Longer| RequestTime {
            len: longer.len,
            alone_ns: longer.latency.0 as f64,
            further_ns: block.further_ns,
            later_ns: 0.0,
        };
        let [first, second, third] = longer.each_ref().map(request);
        let mut model = Self {
            placement,
            service_ns: ns(&findings.service)?,
            per_byte_ns: ns(&findings.per_kib)? / 1024.0,
            requests: [block, first, second, third],
            bytes_per_ns: findings.bandwidth?.value as f64 / 1e9,
            contiguous_ns: ns(&findings.contiguous)?,
            flow: None,
        };
        for (nth, longer) in longer.iter().enumerate() {
            model.requests[nth + 1].further_ns = model.further_of(longer);
        }
        if let (Ok(inner), Ok(blocks)) = (&findings.inner, ns(&findings.scattered)) {
            let longer = longer.map(|longer| longer.scattered.0 as f64);
            model.follow(&inner.value, [blocks, longer[0], longer[1], longer[2]]);
        }
        Ok(model)
    }

    /// Follow requests through the drive, unless reads of each length at random places took another time.
    fn follow(&mut self, inner: &Inner, scattered: [f64; KINDS + 1]) {
        if !self.is_sound() {
            return;
        }
        let Some(flow) = self.flow_of(inner) else {
            return;
        };
        let mut requests = self.requests;
        for (request, measured) in requests.iter_mut().zip(scattered) {
            request.later_ns = measured - self.scattered_ns(&flow, request.len.0);
            if request.later_ns.abs() > REFUTES * measured {
                return;
            }
        }
        self.requests = requests;
        self.flow = Some(flow);
    }

    /// The way of requests that takes as long as they did on one unit and on several; `None` where no drive can be
    /// as the inner is.
    fn flow_of(&self, inner: &Inner) -> Option<Flow> {
        let block = BLOCK as f64;
        // The drive has carried as many bytes, whatever made reads wait.
        let link_ns = inner.link_ns.min(1.0 / self.bytes_per_ns);
        let sent = block * (inner.transfer_ns + link_ns);
        let with_registers = |holds| {
            let sense_ns = match holds {
                true => self.service_ns - block * inner.transfer_ns,
                false => self.service_ns,
            };
            let sense_ns = sense_ns.max(0.0);
            Flow {
                page: inner.page,
                channels: inner.channels,
                sense_ns,
                transfer_ns: inner.transfer_ns,
                link_ns,
                holds,
                submit_ns: 0.0,
                host_ns: (self.latency_ns() - sense_ns - sent).max(0.0),
            }
        };
        let placement = &self.placement;
        let (len, further) = speed::longer_chain(*placement);
        let measured = self.service_ns + self.per_byte_ns * further;
        let off = |flow: &Flow| {
            let of = |count| flow.mean_ns(placement, count, placement.stripe().0, len);
            let (half, whole) = (of(speed::CHAIN / 2), of(speed::CHAIN));
            ((whole - half) / (speed::CHAIN / 2) as f64 - measured).abs()
        };
        let (one, two) = (with_registers(true), with_registers(false));
        if ![one, two]
            .iter()
            .all(|flow| flow.is_sound(placement, LONGEST_NS))
        {
            return None;
        }
        let mut flow = match off(&one) <= off(&two) {
            true => one,
            false => two,
        };
        // A part of the delay by further requests is that they wait for a channel.
        let count = speed::in_turn(*placement);
        let of = |flow: &Flow, count| flow.mean_ns(placement, count, placement.granule.0, BLOCK);
        let measured = of(&flow, 1) + (count.max(2) - 1) as f64 * self.per_request_ns();
        flow.submit_ns = solve(self.per_request_ns(), measured, |submit_ns| {
            let flow = Flow { submit_ns, ..flow };
            of(&flow, count)
        });
        Some(flow)
    }

    /// The mean time of [`USUAL_READ`] in requests of this length at random places.
    fn scattered_ns(&self, flow: &Flow, len: u64) -> f64 {
        let room = self.random_room();
        let mut draw = Draw::new(len);
        let mut of_read = || {
            let places: Vec<u64> = (0..USUAL_READ.0 / len)
                .map(|_| draw.below(room) * BLOCK)
                .collect();
            flow.read_ns(&self.placement, places.iter().map(|place| (*place, len)))
        };
        (0..SIMULATED).map(|_| of_read()).sum::<f64>() / SIMULATED as f64
    }

    /// Blocks at whose places random reads begin.
    fn random_room(&self) -> u64 {
        u64::from(self.placement.units) * self.placement.granule.0 * 64 / BLOCK
    }

    /// The time by which requests of a length delay others, so that reads of them at random places take as
    /// long as they did.
    fn further_of(&self, longer: &Longer) -> f64 {
        let len = longer.len.0;
        let count = (USUAL_READ.0 / len).max(2);
        let room = self.random_room();
        let mut draw = Draw::new(len);
        let mut of_read = || {
            let extent = |nth| Extent {
                file: FileOffset(nth * len),
                phys: PhysOffset(draw.below(room) * BLOCK),
                len: Bytes(len),
                flags: ExtentFlags::empty(),
            };
            let layout = Layout::new((0..count).map(extent).collect());
            self.beyond_ns(&layout, FileRange::new(0, count * len), len)
        };
        let beyond: Vec<f64> = (0..SIMULATED).map(|_| of_read()).collect();
        let measured = longer.scattered.0 as f64 - longer.latency.0 as f64;
        let mean = |further: f64| {
            let of = |beyond: &f64| beyond.hypot((count - 1) as f64 * further);
            beyond.iter().map(of).sum::<f64>() / beyond.len() as f64
        };
        solve(measured.max(0.0), measured, mean)
    }

    /// Whether the values are such as a drive can have: no time above an hour.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let of_requests = self.requests.map(|it| [it.alone_ns, it.further_ns]);
        let others = [self.service_ns, self.per_byte_ns, self.contiguous_ns];
        let mut times = of_requests.as_flattened().iter().chain(&others);
        times.all(|ns| (0.0..=LONGEST_NS).contains(ns))
            && self.requests.is_sorted_by(|a, b| a.len < b.len)
            && self.bytes_per_ns.is_finite()
            && self.bytes_per_ns > 0.0
            && self.placement.is_possible()
            && self
                .requests
                .iter()
                .all(|it| it.later_ns.abs() <= LONGEST_NS)
            && self
                .flow
                .is_none_or(|flow| flow.is_sound(&self.placement, LONGEST_NS))
    }

    /// One read of a block alone, in nanoseconds.
    #[must_use]
    pub fn latency_ns(&self) -> f64 {
        self.requests[0].alone_ns
    }

    /// Each further request of a block delays the others, in nanoseconds.
    #[must_use]
    pub fn per_request_ns(&self) -> f64 {
        self.requests[0].further_ns
    }

    /// The time of one read of a range of a file, in requests of at most `request` bytes, in nanoseconds.
    #[must_use]
    pub fn read_ns(&self, layout: &Layout, range: FileRange, request: u64) -> f64 {
        let requests = || {
            layout.placed_fragments(range).flat_map(move |fragment| {
                let (place, len, most) = (fragment.phys.0, fragment.len.0, request.max(BLOCK));
                let from = move |nth: u64| (place + nth * most, (len - nth * most).min(most));
                (0..len.div_ceil(most)).map(from)
            })
        };
        let (mut longest, mut bytes, mut further, mut count) = (0, 0, 0.0, 0);
        for (_, len) in requests() {
            longest = longest.max(len);
            bytes += len;
            further += self.further_ns(len);
            count += 1;
        }
        if count == 1 {
            return self.contiguous_read_ns(Bytes(bytes));
        }
        if count == 0 {
            return 0.0;
        }
        let alone = self.alone_ns(longest);
        if let Some(flow) = self.flow.filter(|_| bytes <= FOLLOWED) {
            let later = self.between(longest.min(self.requests[KINDS].len.0), |it| it.later_ns);
            return alone.max(flow.read_ns(&self.placement, requests()) + later);
        }
        let beyond = self.beyond_ns(layout, range, longest);
        let further = (further - self.further_ns(longest)).max(0.0);
        // Requests of one unit wait while those of others are taken: the two hide each other in part.
        let waits = alone + beyond.hypot(further);
        let carried = bytes.saturating_sub(BLOCK) as f64 / self.bytes_per_ns.max(1e-9);
        waits.max(self.latency_ns() + carried)
    }

    /// The time that the busiest unit has to work beyond the longest request.
    fn beyond_ns(&self, layout: &Layout, range: FileRange, longest: u64) -> f64 {
        let times = self.times();
        let busiest = times.read_ns(layout, range, &self.placement.geometry(), 0);
        // It begins anywhere in a granule, and so a part of it is on the next unit.
        let granule = self.placement.granule.0 as f64;
        let of_longest = (longest as f64).min(granule);
        let of_longest = of_longest * (1.0 - of_longest / granule / 4.0);
        let own = times.sense_ns as f64 + of_longest * self.per_byte_ns;
        (busiest - own).max(0.0)
    }

    /// The time of one read of so many contiguous bytes, in nanoseconds.
    #[must_use]
    pub fn contiguous_read_ns(&self, len: Bytes) -> f64 {
        if len <= USUAL_READ {
            return self.alone_ns(len.0);
        }
        let carried = len.0.saturating_sub(BLOCK) as f64 / self.bytes_per_ns.max(1e-9);
        self.alone_ns(len.0).max(self.latency_ns() + carried)
    }

    fn alone_ns(&self, len: u64) -> f64 {
        let last = &self.requests[KINDS];
        match len.checked_sub(last.len.0) {
            None | Some(0) => self.between(len, |request| request.alone_ns).max(0.0),
            Some(beyond) => {
                let longer = (USUAL_READ.0 - last.len.0) as f64;
                let per_byte = (self.contiguous_ns - last.alone_ns).max(0.0) / longer;
                last.alone_ns + per_byte * beyond as f64
            }
        }
    }

    fn further_ns(&self, len: u64) -> f64 {
        self.between(len, |request| request.further_ns).max(0.0)
    }

    /// The time of a length between those that were measured; beyond them, as it grew last.
    fn between(&self, len: u64, of: impl Fn(&RequestTime) -> f64) -> f64 {
        let above = self.requests[1..].partition_point(|request| request.len.0 < len);
        let above = above.min(KINDS - 1) + 1;
        let (low, high) = (&self.requests[above - 1], &self.requests[above]);
        let per_byte = (of(high) - of(low)) / (high.len.0 - low.len.0).max(1) as f64;
        of(low) + per_byte * (len as f64 - low.len.0 as f64)
    }

    /// The times of a unit: a read of it senses a granule, and takes time for each byte.
    #[must_use]
    pub fn times(&self) -> DeviceTimes {
        let transfer = self.per_byte_ns * self.placement.granule.0 as f64;
        DeviceTimes {
            page_bytes: self.placement.granule,
            sense_ns: (self.service_ns - self.per_byte_ns * BLOCK as f64).max(0.0) as u64,
            transfer_ns: transfer as u64,
            command_ns: (self.latency_ns() - self.service_ns).max(0.0) as u64,
        }
    }
}

/// The value from 0 to `most` for which a function that grows with it is `wanted`.
fn solve(most: f64, wanted: f64, of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..30 {
        let middle = f64::midpoint(low, high);
        match of(middle) < wanted {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
impl ReadModel {
    /// The model of some drive.
    pub(crate) fn example() -> Self {
        let of = |kib, alone_ns, further_ns| RequestTime {
            len: Bytes::kib(kib),
            alone_ns,
            further_ns,
            later_ns: 0.0,
        };
        Self {
            placement: Placement {
                granule: Bytes::kib(32),
                units: 8,
            },
            service_ns: 80_000.0,
            per_byte_ns: 1.0,
            requests: [
                of(4, 100_000.0, 2_000.0),
                of(16, 112_000.0, 4_000.0),
                of(32, 128_000.0, 5_000.0),
                of(64, 160_000.0, 8_000.0),
            ],
            bytes_per_ns: 4.0,
            contiguous_ns: 192_000.0,
            flow: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Channels, *};

    /// Fragments of one length at these places.
    fn layout(len: u64, places: &[u64]) -> Layout {
        let extent = |(nth, place): (usize, &u64)| Extent {
            file: FileOffset(nth as u64 * len),
            phys: PhysOffset(*place),
            len: Bytes(len),
            flags: ExtentFlags::empty(),
        };
        Layout::new(places.iter().enumerate().map(extent).collect())
    }

    #[test]
    fn a_read_takes_what_its_longest_request_and_the_busiest_unit_take() {
        let model = ReadModel::example();
        assert!(model.is_sound());
        let granule = 32 << 10;
        let ns = |len: u64, places: &[u64]| {
            let range = FileRange::new(0, len * places.len() as u64);
            model.read_ns(&layout(len, places), range, 256 << 10)
        };
        assert_eq!(ns(4096, &[0]), 100_000.0);
        assert_eq!(ns(16 << 10, &[4096]), 112_000.0);
        assert_eq!(ns(10 << 10, &[0]), 106_000.0);
        // On units of their own, and on one.
        let apart = ns(4096, &[0, granule]);
        assert!((102_000.0..102_100.0).contains(&apart), "{apart}");
        let colliding = ns(4096, &[0, 8 * granule]);
        assert!((180_000.0..180_300.0).contains(&colliding), "{colliding}");
        // All of it in one piece: as measured.
        assert_eq!(ns(USUAL_READ.0, &[4096]), 192_000.0);
        assert_eq!(model.contiguous_read_ns(USUAL_READ), 192_000.0);
        assert_eq!(model.contiguous_read_ns(Bytes::kib(64)), 160_000.0);
        // No faster than the drive carries bytes.
        assert!(model.contiguous_read_ns(Bytes::mib(1)) >= 100_000.0 + 1_044_480.0 / 4.0);
        assert_eq!(ns(4096, &[]), 0.0);
    }

    /// Units of two pages each, two of them on a channel.
    fn inner() -> Inner {
        Inner {
            page: Bytes::kib(16),
            channels: Channels { run: 1, count: 4 },
            transfer_ns: 1.0,
            link_ns: 0.0,
        }
    }

    #[test]
    fn requests_are_followed_unless_reads_took_another_time() {
        let mut model = ReadModel::example();
        let flow = model.flow_of(&inner()).unwrap();
        let [blocks, first, second, third] = model
            .requests
            .map(|request| model.scattered_ns(&flow, request.len.0));
        // They took as long as their way, and 5 µs.
        let late = [blocks, first, second, third].map(|ns| ns + 5_000.0);
        model.follow(&inner(), late);
        assert!(model.is_sound());
        let ns = |model: &ReadModel, places: &[u64]| {
            let range = FileRange::new(0, 4096 * places.len() as u64);
            model.read_ns(&layout(4096, places), range, 256 << 10)
        };
        let granule = 32 << 10;
        // On channels of their own, on one channel, and on one unit.
        let apart = ns(&model, &[0, granule]) - ns(&model, &[0]);
        let on_channel = ns(&model, &[0, 4 * granule]) - ns(&model, &[0]);
        let on_unit = ns(&model, &[0, 8 * granule]) - ns(&model, &[0]);
        assert!((5_000.0..=7_100.0).contains(&apart), "{apart}");
        assert!((9_000.0..=9_200.0).contains(&on_channel), "{on_channel}");
        assert!((84_900.0..=85_100.0).contains(&on_unit), "{on_unit}");
        // Another page of the unit is another sense.
        let same_unit = ns(&model, &[0, granule / 2]) - ns(&model, &[0]);
        assert!((same_unit - on_unit).abs() < 1.0, "{same_unit}");
        // Drives on which reads take twice as long are not as was thought.
        let mut other = ReadModel::example();
        other.follow(&inner(), [blocks, first, second, third].map(|ns| ns * 2.0));
        assert_eq!(other, ReadModel::example());
        // Nor are those that no drive can be.
        let mut wrong = [inner(); 3];
        wrong[0].channels = Channels { run: 0, count: 0 };
        wrong[1].page = Bytes::mib(1);
        wrong[2].transfer_ns = f64::NAN;
        for wrong in wrong {
            other.follow(&wrong, late);
            assert_eq!(other, ReadModel::example());
        }
    }

    #[test]
    fn what_no_drive_can_have_is_not_sound() {
        let model = ReadModel::example();
        let mut wrong = [model; 5];
        let mut flow = model.flow_of(&inner()).unwrap();
        flow.channels.count = 3;
        wrong[4].flow = Some(flow);
        wrong[0].service_ns = f64::NAN;
        wrong[1].placement.units = 0;
        wrong[2].requests[1].alone_ns = 1e13;
        wrong[3].bytes_per_ns = 0.0;
        assert!(wrong.iter().all(|model| !model.is_sound()));
    }
}
