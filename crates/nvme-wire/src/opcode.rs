//! The opcodes of commands.

use linux_abi::nvme::{
    GET_LOG_PAGE, IDENTIFY,
    command::{COPY, FLUSH},
};

codes! {
    /// Commands of the admin queue (Base §5).
    pub enum AdminOpcode: u8 {
        /// Get Log Page (Base §5.16).
        GetLogPage = GET_LOG_PAGE,
        /// Identify (Base §5.17).
        Identify = IDENTIFY,
        /// Abort (Base §5.1).
        Abort = 0x08,
        /// Set Features (Base §5.27).
        SetFeatures = 0x09,
        /// Get Features (Base §5.15).
        GetFeatures = 0x0A,
        /// Asynchronous Event Request (Base §5.2).
        AsyncEventRequest = 0x0C,
        /// Keep Alive (Base §5.18).
        KeepAlive = 0x18,
        /// Fabrics commands (Base §6).
        Fabrics = 0x7F,
    }
}

codes! {
    /// Commands of I/O queues (NVM §3.2, ZNS §3.4, InDeF §III-C).
    pub enum IoOpcode: u8 {
        /// Flush (Base §7.1).
        Flush = FLUSH,
        /// Write (NVM §3.2.6).
        Write = 0x01,
        /// Read (NVM §3.2.4).
        Read = 0x02,
        /// Compare (NVM §3.2.1).
        Compare = 0x05,
        /// Write Zeroes (NVM §3.2.8).
        WriteZeroes = 0x08,
        /// Dataset Management (NVM §3.2.3).
        DatasetManagement = 0x09,
        /// Verify (NVM §3.2.5).
        Verify = 0x0C,
        /// I/O Management Receive (TP4146).
        IoManagementReceive = 0x12,
        /// Copy (NVM §3.2.2).
        Copy = COPY,
        /// I/O Management Send (TP4146).
        IoManagementSend = 0x1D,
        /// Zone Management Send (ZNS §3.4.3).
        ZoneManagementSend = 0x79,
        /// Zone Management Receive (ZNS §3.4.2).
        ZoneManagementReceive = 0x7A,
        /// Zone Append (ZNS §3.4.1).
        ZoneAppend = 0x7D,
        /// Fabrics commands (Base §6): Disconnect and authentication come on I/O queues, too.
        Fabrics = 0x7F,
        /// In_Device_Defragment, a vendor command (InDeF §III-C). Odd, as its data goes to the
        /// device.
        InDeviceDefragment = 0xC1,
    }
}

codes! {
    /// FCTYPE: which command of Fabrics (Base §6).
    pub enum FabricsType: u8 {
        /// Property Set (Base §6.6).
        PropertySet = 0x00,
        /// Connect (Base §6.3).
        Connect = 0x01,
        /// Property Get (Base §6.5).
        PropertyGet = 0x04,
        /// Authentication Send (Base §6.2).
        AuthenticationSend = 0x05,
        /// Authentication Receive (Base §6.1).
        AuthenticationReceive = 0x06,
        /// Disconnect (Base §6.4).
        Disconnect = 0x08,
    }
}

/// The direction of a command's data: bits 1:0 of every opcode (Base §3.3.3.1), and of FCTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// None.
    NoData,
    /// Host to controller.
    ToController,
    /// Controller to host.
    ToHost,
    /// Both: no command that is defined here.
    Both,
}

impl Direction {
    /// The direction that an opcode stands for.
    #[must_use]
    pub const fn of(opcode: u8) -> Self {
        match opcode & 0b11 {
            0b00 => Self::NoData,
            0b01 => Self::ToController,
            0b10 => Self::ToHost,
            _ => Self::Both,
        }
    }
}
