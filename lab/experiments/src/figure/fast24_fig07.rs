//! FAST'24, Figure 7: request splitting alone, on a device that was written in order.

use std::collections::BTreeMap;

use flash_model::Span;
use units::Nanos;

use super::{
    error::FigureError,
    fast24::profile,
    measured::{Measured, Unit},
    parameters::Parameters,
};
use crate::fast24::{
    host::{Host, KIB},
    placement::filled,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let device = filled(&profile(parameters.text("device")?)?);
    let bytes = parameters.bytes("read")?;
    let request = parameters.bytes("request")?;
    let mut measured = Measured::default();
    for depth in parameters.counts("depths")? {
        let series = format!("depth {depth}");
        let mut times = BTreeMap::new();
        for unit in parameters.sizes("units")? {
            let mut host = Host::new(device.clone(), false, Nanos(0));
            // The device has been busy until now.
            host.sync();
            let len = unit.min(request);
            let spans = (0..bytes).step_by(len as usize);
            let spans = spans.map(|offset| Span { offset, len });
            let time = host.read_spans(spans, depth as usize);
            times.insert(bytes / len, time.0 as f64);
            measured.push(
                &series,
                (unit / KIB) as f64,
                time.0 as f64 / 1e6,
                Unit::Millis,
            );
        }
        measured.push(
            &format!("{series}, each further request"),
            "NVMe",
            slope(&times) / 1e3,
            Unit::Micros,
        );
        let ends = [times.first_key_value(), times.last_key_value()];
        if let [Some((_, least)), Some((_, most))] = ends {
            measured.push(
                &format!("{series}, all requests"),
                "NVMe",
                (most - least) / 1e6,
                Unit::Millis,
            );
        }
    }
    Ok(measured)
}

/// The slope of the least-squares line through these points.
fn slope(points: &BTreeMap<u64, f64>) -> f64 {
    let count = points.len() as f64;
    let mean_x = points.keys().map(|x| *x as f64).sum::<f64>() / count;
    let mean_y = points.values().sum::<f64>() / count;
    let (mut above, mut below) = (0.0, 0.0);
    for (x, y) in points {
        let dx = *x as f64 - mean_x;
        above += dx * (y - mean_y);
        below += dx * dx;
    }
    above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_line() {
        let points = BTreeMap::from([(1, 5.0), (8, 26.0), (256, 770.0)]);
        assert!((slope(&points) - 3.0).abs() < 1e-9);
    }
}
