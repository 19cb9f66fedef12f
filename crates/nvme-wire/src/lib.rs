//! NVMe and NVMe/TCP on the wire.
//!
//! Every structure is a `repr(C)` type of little-endian fields without alignment, so that bytes
//! become fields (and back) without a copy and without unsafe code, and its size is asserted. Every
//! code is an exhaustive enum with an `Unknown` arm: every value on a wire has a name. Commands are
//! parsed once into one plain enum, [`Command`], whose numbers are those that a program computes
//! with: a zero-based count on the wire is a count here, and its comment says so.
//!
//! Layouts and numbers that a host passes through its kernel are `linux_abi::nvme`'s, and shown here beside
//! the others.
//!
//! It ignores sockets, queues, connections, and whether a command makes sense for a device; it
//! refuses only mistakes that the bytes alone show. Metadata, protection information and
//! reservations are not described, as no user of this crate has them.
//!
//! Sources, with the names by which comments cite them:
//! - *Base*: NVM Express Base Specification 2.0
//! - *NVM*: NVM Command Set Specification 1.0 (Copy descriptor formats 2h and 3h: 1.1)
//! - *ZNS*: Zoned Namespace Command Set Specification 1.1
//! - *TCP*: NVMe TCP Transport Specification 1.0
//! - *TP4146*: Flexible Data Placement, which is part of Base 2.1
//! - *FAST'24*: "We Ain't Afraid of No File Fragmentation", for the hints in Write
//! - *InDeF*: "In-Device Defragmentation", for the vendor command

#![forbid(unsafe_code)]

// `wire!`: a structure on the wire.
#[macro_use(wire)]
extern crate linux_abi;

/// A closed set of codes, with an arm for all other values.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident: $raw:ty {
        $($(#[$code_meta:meta])* $code:ident = $value:tt,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$code_meta])* $code,)*
            /// Any other code, as on the wire.
            Unknown($raw),
        }

        impl $name {
            /// Every code that has a name.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// The meaning of a code on the wire.
            #[must_use]
            pub const fn from_raw(raw: $raw) -> Self {
                match raw {
                    $($value => Self::$code,)*
                    other => Self::Unknown(other),
                }
            }

            /// The code on the wire.
            #[must_use]
            pub const fn raw(self) -> $raw {
                match self {
                    $(Self::$code => $value,)*
                    Self::Unknown(raw) => raw,
                }
            }
        }
    };
}

pub mod admin;
pub mod command;
pub mod copy;
pub mod discovery;
pub mod event;
pub mod fabrics;
pub mod fdp;
pub mod feature;
pub mod identify;
pub mod io;
pub mod log;
pub mod opcode;
mod parsed;
pub mod pdu;
pub mod property;
pub mod range;
pub mod status;
mod text;
pub mod vendor;
pub mod zone;

#[cfg(test)]
mod tests;

pub use command::{ALL_NAMESPACES, Completion, Sgl, Submission};
pub use parsed::{Command, QueueKind};
pub use status::Status;
pub use text::{ascii, nqn, nqn_of};
