//! The data structures of Identify (Base §5.17).

mod controller;
mod namespace;

pub use controller::{SglSupport, nvm::NvmController, zoned::ZonedController};
pub use linux_abi::nvme::identify::*;
pub use namespace::{
    IndependentNamespace, NvmNamespace, OZCS_READ_ACROSS_ZONES, ZonedLbaFormat, ZonedNamespace,
    descriptors,
};

codes! {
    /// CNS: which structure (Base §5.17.1).
    pub enum Cns: u8 {
        /// Identify Namespace of the NVM command set (NVM §4.1.5.1).
        Namespace = CNS_NAMESPACE,
        /// Identify Controller (Base §5.17.2.1).
        Controller = CNS_CONTROLLER,
        /// Active Namespace ID list (Base §5.17.2.2).
        ActiveNamespaces = 0x02,
        /// Namespace Identification Descriptor list (Base §5.17.2.3).
        NamespaceDescriptors = 0x03,
        /// NVM Set List (Base §5.17.2.4).
        NvmSets = 0x04,
        /// Identify Namespace of an I/O command set (Base §5.17.2.5).
        CommandSetNamespace = 0x05,
        /// Identify Controller of an I/O command set (Base §5.17.2.6).
        CommandSetController = 0x06,
        /// Active Namespace ID list of an I/O command set (Base §5.17.2.7).
        CommandSetActiveNamespaces = 0x07,
        /// Identify Namespace independent of the I/O command set (Base §5.17.2.8).
        IndependentNamespace = 0x08,
        /// Allocated Namespace ID list (Base §5.17.2.9).
        AllocatedNamespaces = 0x10,
        /// Identify Namespace of an allocated one (Base §5.17.2.10).
        AllocatedNamespace = 0x11,
        /// Controllers to which a namespace is attached (Base §5.17.2.11).
        NamespaceControllers = 0x12,
        /// Controllers of the subsystem (Base §5.17.2.12).
        Controllers = 0x13,
        /// Endurance Group List (Base §5.17.2.17).
        EnduranceGroups = 0x19,
        /// I/O Command Set data structure (Base §5.17.2.18).
        CommandSets = 0x1C,
    }
}

codes! {
    /// CSI: an I/O command set (Base §3.1.3.1, CAP.CSS).
    pub enum CommandSet: u8 {
        /// NVM.
        Nvm = 0x00,
        /// Key Value.
        KeyValue = 0x01,
        /// Zoned Namespace.
        Zoned = 0x02,
    }
}
