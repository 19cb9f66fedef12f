//! The status of a completed command.

codes! {
    /// Status code type and status code as one number: `SCT << 8 | SC` (Base §3.3.3.2.1 to
    /// 98; Fabrics: Base §3.3.3.2.1.2).
    pub enum Status: u16 {
        /// Done.
        Success = 0x000,
        /// Invalid Command Opcode.
        InvalidOpcode = 0x001,
        /// Invalid Field in Command.
        InvalidField = 0x002,
        /// Command ID Conflict: a command with the same identifier is not done yet.
        CommandIdConflict = 0x003,
        /// Data Transfer Error.
        DataTransferError = 0x004,
        /// Commands Aborted due to Power Loss Notification.
        AbortedPowerLoss = 0x005,
        /// Internal Error.
        InternalError = 0x006,
        /// Command Abort Requested.
        AbortRequested = 0x007,
        /// Command Aborted due to SQ Deletion.
        AbortedQueueDeletion = 0x008,
        /// Invalid Namespace or Format.
        InvalidNamespace = 0x00B,
        /// Command Sequence Error.
        SequenceError = 0x00C,
        /// Invalid SGL Segment Descriptor.
        InvalidSglSegment = 0x00D,
        /// Invalid Number of SGL Descriptors.
        InvalidSglCount = 0x00E,
        /// Data SGL Length Invalid.
        SglLengthInvalid = 0x00F,
        /// SGL Descriptor Type Invalid.
        SglTypeInvalid = 0x011,
        /// SGL Offset Invalid.
        SglOffsetInvalid = 0x016,
        /// Host Identifier Inconsistent Format.
        HostIdInconsistent = 0x018,
        /// Keep Alive Timer Expired.
        KeepAliveExpired = 0x019,
        /// Keep Alive Timeout Invalid.
        KeepAliveInvalid = 0x01A,
        /// Namespace is Write Protected.
        WriteProtected = 0x020,
        /// Transient Transport Error.
        TransientTransportError = 0x022,
        /// FDP Disabled (TP4146).
        FdpDisabled = 0x029,
        /// Invalid Placement Handle List (TP4146).
        InvalidPlacementHandleList = 0x02A,
        /// LBA Out of Range.
        LbaOutOfRange = 0x080,
        /// Capacity Exceeded.
        CapacityExceeded = 0x081,
        /// Namespace Not Ready.
        NamespaceNotReady = 0x082,

        /// Invalid Queue Identifier.
        InvalidQueueId = 0x101,
        /// Invalid Queue Size.
        InvalidQueueSize = 0x102,
        /// Abort Command Limit Exceeded.
        AbortLimitExceeded = 0x103,
        /// Asynchronous Event Request Limit Exceeded.
        EventLimitExceeded = 0x105,
        /// Invalid Log Page.
        InvalidLogPage = 0x109,
        /// Invalid Format.
        InvalidFormat = 0x10A,
        /// Feature Identifier Not Saveable.
        FeatureNotSaveable = 0x10D,
        /// Feature Not Changeable.
        FeatureNotChangeable = 0x10E,
        /// Feature Not Namespace Specific.
        FeatureNotNamespaceSpecific = 0x10F,
        /// I/O Command Set Not Supported.
        CommandSetNotSupported = 0x129,
        /// I/O Command Set Not Enabled.
        CommandSetNotEnabled = 0x12A,
        /// I/O Command Set Combination Rejected.
        CommandSetCombinationRejected = 0x12B,
        /// Invalid I/O Command Set.
        InvalidCommandSet = 0x12C,

        // 80h to BFh of this type mean one thing to Fabrics and another to an I/O command set;
        // those of Fabrics are in [`ConnectStatus`].
        /// Conflicting Attributes.
        ConflictingAttributes = 0x180,
        /// Invalid Protection Information.
        InvalidProtection = 0x181,
        /// Attempted Write to Read Only Range.
        ReadOnlyRange = 0x182,
        /// Command Size Limit Exceeded.
        SizeLimitExceeded = 0x183,
        /// Incompatible Namespace or Format.
        IncompatibleNamespace = 0x185,
        /// Fast Copy Not Possible.
        FastCopyNotPossible = 0x186,
        /// Overlapping I/O Range.
        OverlappingRange = 0x187,
        /// Invalid Zone Operation Request.
        InvalidZoneOperation = 0x1B6,
        /// Zone Boundary Error.
        ZoneBoundary = 0x1B8,
        /// Zone Is Full.
        ZoneFull = 0x1B9,
        /// Zone Is Read Only.
        ZoneReadOnly = 0x1BA,
        /// Zone Is Offline.
        ZoneOffline = 0x1BB,
        /// Zone Invalid Write.
        ZoneInvalidWrite = 0x1BC,
        /// Too Many Active Zones.
        TooManyActive = 0x1BD,
        /// Too Many Open Zones.
        TooManyOpen = 0x1BE,
        /// Invalid Zone State Transition.
        InvalidZoneTransition = 0x1BF,

        /// Write Fault.
        WriteFault = 0x280,
        /// Unrecovered Read Error.
        UnrecoveredRead = 0x281,
        /// Compare Failure.
        CompareFailure = 0x285,
        /// Access Denied.
        AccessDenied = 0x286,

        /// Internal Path Error.
        InternalPathError = 0x300,
    }
}

impl Status {
    /// SCT: the kind of the status.
    #[must_use]
    pub const fn code_type(self) -> u8 {
        (self.raw() >> 8 & 0x7) as u8
    }

    /// SC: the code within the kind.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.raw() as u8
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.raw() == 0
    }

    /// Whether the same command may succeed if it is sent again: else a host should not try.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Success
                | Self::InternalError
                | Self::AbortRequested
                | Self::AbortedQueueDeletion
                | Self::DataTransferError
                | Self::NamespaceNotReady
                | Self::TransientTransportError
        )
    }

    /// The upper 16 bits of completion dword 3: status in bits 11:1, DNR in bit 15.
    #[must_use]
    pub const fn field(self) -> u16 {
        let do_not_retry = if self.is_transient() { 0 } else { 1 << 15 };
        (self.raw() & 0x7FF) << 1 | do_not_retry
    }

    /// The status in such a field.
    #[must_use]
    pub const fn from_field(field: u16) -> Self {
        Self::from_raw(field >> 1 & 0x7FF)
    }
}

/// The further status values of a Connect command (Base §3.3.3.2.1.2), with numbers that an I/O
/// command set uses for something else.
pub mod connect {
    use super::Status;

    /// Connect Incompatible Format.
    pub const INCOMPATIBLE_FORMAT: Status = Status::ConflictingAttributes;
    /// Connect Controller Busy.
    pub const CONTROLLER_BUSY: Status = Status::InvalidProtection;
    /// Connect Invalid Parameters; the result names the parameter (see
    /// [`invalid_parameter`](crate::fabrics::invalid_parameter)).
    pub const INVALID_PARAMETERS: Status = Status::ReadOnlyRange;
    /// Connect Invalid Host.
    pub const INVALID_HOST: Status = Status::Unknown(0x184);
    /// Invalid Queue Type.
    pub const INVALID_QUEUE_TYPE: Status = Status::IncompatibleNamespace;
}
