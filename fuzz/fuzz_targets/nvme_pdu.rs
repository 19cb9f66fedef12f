//! A stream of PDUs as a target reads it, header by header: nothing panics, what is taken stays within
//! its bounds and moves on, and a builder's header says again what was read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nvme_wire::pdu::{CapsuleCmd, Data, Digests, Header, IcReq, PduType, TermReq};

const MAX_DATA: usize = 8192;

fuzz_target!(|bytes: &[u8]| {
    let Some((&options, mut rest)) = bytes.split_first() else {
        return;
    };
    let digests = Digests::from_raw(options & 0b11).unwrap();
    while let Some(header) = Header::first_of(rest) {
        let _ = header.from_controller(digests, MAX_DATA);
        let parts = match header.from_host(digests, MAX_DATA) {
            Ok(parts) => parts,
            Err(fatal) => {
                let term = TermReq::to_host(fatal, rest.len());
                assert_eq!(term.fatal(), fatal);
                assert!(term.header.from_controller(digests, MAX_DATA).is_ok());
                return;
            }
        };
        assert!(parts.total <= 255 + MAX_DATA + 4);
        let Some(pdu) = rest.get(..parts.total) else {
            return;
        };
        let _ = pdu[parts.data_start..].get(..parts.data).unwrap();
        match header.pdu_type() {
            PduType::IcReq => {
                let _ = IcReq::first_of(pdu).unwrap().digests();
            }
            PduType::CapsuleCmd => assert!(CapsuleCmd::first_of(pdu).is_some()),
            PduType::H2cData => assert!(Data::first_of(pdu).is_some()),
            _ => {}
        }
        rest = &rest[parts.total..];
    }
});
