//! The answers as a JSON document (docs/json.md).

use std::collections::BTreeMap;

use indef_core::probe::{Measured, Point, Told, Verdict};
use indef_pipeline::probe::{Kept, Probed};
use serde::Serialize;
use units::{Bytes, Nanos};

use crate::document::SCHEMA;

/// `probe --json`.
#[derive(Serialize)]
pub(super) struct ProbeDocument {
    schema: u64,
    device: String,
    model: Option<String>,
    fs: Option<String>,
    granularity_bytes: Option<Bytes>,
    stripe_bytes: Option<Bytes>,
    units: Option<u32>,
    latency_ns: Option<Nanos>,
    service_ns: Option<Nanos>,
    per_kib_ns: Option<Nanos>,
    per_request_ns: Option<Nanos>,
    bandwidth_bytes_per_s: Option<u64>,
    contiguous_read_ns: Option<Nanos>,
    scattered_read_ns: Option<Nanos>,
    depth_knee: Option<u64>,
    dolf_knee_bytes: Option<u64>,
    dopf_knee_units: Option<u64>,
    /// 0 to 1, for each answer.
    confidence: BTreeMap<&'static str, f64>,
    /// The reason for each answer that there is not.
    unknown: BTreeMap<&'static str, String>,
    sweeps: Sweeps,
    /// As `--geometry` takes it.
    geometry: Option<String>,
    verdict_kind: &'static str,
    verdict: String,
    file: Option<ProbeFileJson>,
    /// The file in which the answers are kept.
    kept: Option<String>,
    /// The file with those of an earlier probe, where these do not replace them.
    kept_earlier: Option<String>,
    took_ns: Nanos,
}

#[derive(Serialize)]
struct Sweeps {
    depths: Vec<Point>,
    sizes: Vec<Point>,
    units: Vec<Point>,
}

#[derive(Serialize)]
struct ProbeFileJson {
    written_bytes: Bytes,
    pieces: u64,
    usable_bytes: Bytes,
}

/// Splits answers into values, confidences and reasons.
#[derive(Default)]
struct Split {
    confidence: BTreeMap<&'static str, f64>,
    unknown: BTreeMap<&'static str, String>,
}

impl Split {
    fn take<T: Copy>(&mut self, name: &'static str, told: &Told<T>) -> Option<T> {
        match told {
            Ok(Measured { value, confidence }) => {
                self.confidence.insert(name, *confidence);
                Some(*value)
            }
            Err(why) => {
                self.unknown.insert(name, why.to_string());
                None
            }
        }
    }
}

impl ProbeDocument {
    pub(super) fn new(probed: &Probed, kept: Option<&Kept>) -> Self {
        let found = &probed.findings;
        let mut split = Split::default();
        let granule = found.placement.map(|told| Measured {
            value: told.value.granule,
            confidence: told.confidence,
        });
        let stripe = found.placement.map(|told| Measured {
            value: told.value.stripe(),
            confidence: told.confidence,
        });
        let units = found.placement.map(|told| Measured {
            value: told.value.units,
            confidence: told.confidence,
        });
        let verdict = Verdict::of(found);
        Self {
            schema: SCHEMA,
            device: probed.drive.path.display().to_string(),
            model: probed.drive.model.clone(),
            fs: probed.fs.map(|fs| fs.to_string()),
            granularity_bytes: split.take("granularity_bytes", &granule),
            stripe_bytes: split.take("stripe_bytes", &stripe),
            units: split.take("units", &units),
            latency_ns: split.take("latency_ns", &found.latency),
            service_ns: split.take("service_ns", &found.service),
            per_kib_ns: split.take("per_kib_ns", &found.per_kib),
            per_request_ns: split.take("per_request_ns", &found.per_request),
            bandwidth_bytes_per_s: split.take("bandwidth_bytes_per_s", &found.bandwidth),
            contiguous_read_ns: split.take("contiguous_read_ns", &found.contiguous),
            scattered_read_ns: split.take("scattered_read_ns", &found.scattered),
            depth_knee: split.take("depth_knee", &found.depths.knee),
            dolf_knee_bytes: split.take("dolf_knee_bytes", &found.sizes.knee),
            dopf_knee_units: split.take("dopf_knee_units", &found.spread.knee),
            confidence: split.confidence,
            unknown: split.unknown,
            sweeps: Sweeps {
                depths: found.depths.points.clone(),
                sizes: found.sizes.points.clone(),
                units: found.spread.points.clone(),
            },
            geometry: found.geometry().map(|geometry| geometry.to_string()),
            verdict_kind: verdict.kind(),
            verdict: super::text::sentence(&verdict),
            file: probed.file.map(|file| ProbeFileJson {
                written_bytes: file.written,
                pieces: file.pieces,
                usable_bytes: file.usable,
            }),
            kept: match kept {
                Some(Kept::New(path)) => Some(path.display().to_string()),
                _ => None,
            },
            kept_earlier: match kept {
                Some(Kept::Earlier(path, _)) => Some(path.display().to_string()),
                _ => None,
            },
            took_ns: probed.took,
        }
    }
}
