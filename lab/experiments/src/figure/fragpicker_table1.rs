//! FragPicker, Table 1: how the speed of reads goes with the size of fragments and with their distance.

use super::{
    error::FigureError,
    fragpicker_fig04::{REQUEST_KIB, speeds},
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["plug"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    for curves in speeds(parameters)? {
        let sizes = curves.sizes.iter().copied();
        let small: Vec<(f64, f64)> = sizes.clone().filter(|it| it.0 <= REQUEST_KIB).collect();
        let large: Vec<(f64, f64)> = sizes.filter(|it| it.0 >= REQUEST_KIB).collect();
        for (x, points) in [
            ("size, up to 128 KB", &small),
            ("size, above 128 KB", &large),
            ("distance", &curves.distances),
        ] {
            let sums = Sums::of(points);
            let slope = format!("slope: {x}");
            measured.push(&curves.drive, x, sums.correlation(), Unit::Coefficient);
            measured.push(
                &curves.drive,
                slope.as_str(),
                sums.slope(),
                Unit::Coefficient,
            );
        }
    }
    Ok(measured)
}

/// Sums of products of differences from the mean; y is divided by its least value, as in the paper.
struct Sums {
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    fn of(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let least = points.iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
        let mean_x = points.iter().map(|it| it.0).sum::<f64>() / count;
        let mean_y = points.iter().map(|it| it.1 / least).sum::<f64>() / count;
        let differences = points.iter().map(|(x, y)| (x - mean_x, y / least - mean_y));
        differences.fold(
            Self {
                xx: 0.0,
                xy: 0.0,
                yy: 0.0,
            },
            |sums, (x, y)| Self {
                xx: sums.xx + x * x,
                xy: sums.xy + x * y,
                yy: sums.yy + y * y,
            },
        )
    }

    /// Equation 1; 0 for speeds that are all the same, but for rounding.
    fn correlation(&self) -> f64 {
        if self.yy < 1e-18 {
            return 0.0;
        }
        self.xy / (self.xx * self.yy).sqrt()
    }

    /// Equation 2, for each KB.
    fn slope(&self) -> f64 {
        self.xy / self.xx
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_correlates_and_a_constant_does_not() {
        let line = Sums::of(&[(1.0, 20.0), (2.0, 40.0), (4.0, 80.0)]);
        assert!((line.correlation() - 1.0).abs() < 1e-12);
        assert!((line.slope() - 1.0).abs() < 1e-12);
        let constant = Sums::of(&[(1.0, 0.3), (2.0, 0.3), (4.0, 0.3)]);
        assert_eq!((constant.correlation(), constant.slope()), (0.0, 0.0));
        let bent = Sums::of(&[(0.0, 1.0), (1.0, 2.0), (2.0, 1.0)]);
        assert!(bent.correlation().abs() < 1e-12);
    }
}
