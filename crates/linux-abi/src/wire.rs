//! Structures of which every bit pattern is valid.

/// A structure on a wire or in a device's answer, of little-endian fields without alignment: its derives, its
/// size, and constructors. Whoever uses it depends on `zerocopy`.
#[macro_export]
macro_rules! wire {
    ($(#[$meta:meta])* pub struct $name:ident [$size:literal] { $($body:tt)* }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            zerocopy::KnownLayout, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($body)* }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// Bytes on the wire.
            pub const LEN: usize = $size;

            /// The structure with every bit zero.
            #[must_use]
            pub fn zeroed() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }

            /// The structure at the start of `bytes`; `None` if they are too few.
            #[must_use]
            pub fn first_of(bytes: &[u8]) -> Option<Self> {
                <Self as zerocopy::FromBytes>::read_from_prefix(bytes)
                    .ok()
                    .map(|(this, _)| this)
            }
        }
    };
}
