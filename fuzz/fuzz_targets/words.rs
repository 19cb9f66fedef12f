//! Option values as people type them: sizes, geometries, policies. Nothing panics, and what is taken
//! is shown so that it can be read again.

#![no_main]

use indef_core::layout::Geometry;
use indef_core::plan::Policy;
use libfuzzer_sys::fuzz_target;
use units::Bytes;

fuzz_target!(|text: &str| {
    if let Ok(geometry) = text.parse::<Geometry>() {
        assert_eq!(geometry.to_string().parse(), Ok(geometry));
        // Measuring with it works, whatever it is.
        assert!(geometry.contiguous_dopf(Bytes::mib(1)).is_finite());
    }
    if let Ok(policy) = text.parse::<Policy>() {
        assert_eq!(policy.to_string(), text);
    }
    let _ = text.parse::<Bytes>();
});
