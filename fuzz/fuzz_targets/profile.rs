//! The reader of profiles: it never panics, every error is one line, a profile that it takes comes
//! back as it was when written again, and what it counts becomes ordered ranges.

#![no_main]

use indef_core::access::{AccessOptions, join};
use indef_core::profile::Profile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let profile = match Profile::read(text) {
        Ok(profile) => profile,
        Err(error) => {
            assert!(!error.to_string().chars().any(char::is_control), "{error}");
            return;
        }
    };
    let again = profile.write(Vec::new()).unwrap();
    assert_eq!(Profile::read(&again[..]).unwrap(), profile);
    let accesses = join(profile.records, profile.ranges, &AccessOptions::default());
    for (_, ranges) in accesses.iter() {
        assert!(
            ranges
                .windows(2)
                .all(|w| w[0].range.end() <= w[1].range.start)
        );
    }
});
