//! F2FS that has the device move data: the patches of `kernel/f2fs`.

use crate::recipe::{Patch, Recipe, patches};

pub(crate) static RECIPE: Recipe = Recipe {
    sources: &[
        "fs/f2fs",
        "include/uapi/linux/f2fs.h",
        "include/trace/events/f2fs.h",
        "drivers/nvme/host/nvme.h",
        "drivers/nvme/host/trace.h",
    ],
    patches: PATCHES,
    make: &[
        "CONFIG_F2FS_FS_OFFLOAD=y",
        "KCFLAGS=-DCONFIG_F2FS_FS_OFFLOAD=1",
    ],
};

const PATCHES: &[(&str, &[Patch])] = patches! { "f2fs";
    "6.1":
        "0001-f2fs-have-a-checkpoint-wait-for-data-that-replaces-o.patch"
        "0002-f2fs-move-node-blocks-without-the-mark-of-an-old-fsy.patch"
        "0003-f2fs-have-fsync-wait-for-a-checkpoint-that-has-its-n.patch"
        "0004-f2fs-have-a-log-for-data-that-is-moved-on-request.patch"
        "0005-f2fs-leave-what-is-cut-off-with-the-log-for-moved-da.patch"
        "0006-f2fs-send-copies-to-NVMe-namespaces.patch"
        "0007-f2fs-let-the-device-defragment-files.patch"
        "0008-f2fs-have-replaced-data-durable-before-an-fsync-s-no.patch"
        "0009-f2fs-have-sync-flush-the-devices-after-a-checkpoint-.patch"
        "0010-f2fs-have-fsync-flush-all-devices.patch"
        "0011-f2fs-have-fsyncs-of-one-file-take-turns.patch";
    "6.12":
        "0001-f2fs-have-a-checkpoint-wait-for-data-that-replaces-o.patch"
        "0002-f2fs-move-node-blocks-without-the-mark-of-an-old-fsy.patch"
        "0003-f2fs-have-fsync-wait-for-a-checkpoint-that-has-its-n.patch"
        "0004-f2fs-have-a-log-for-data-that-is-moved-on-request.patch"
        "0005-f2fs-leave-what-is-cut-off-with-the-log-for-moved-da.patch"
        "0006-f2fs-send-copies-to-NVMe-namespaces.patch"
        "0007-f2fs-let-the-device-defragment-files.patch"
        "0008-f2fs-have-replaced-data-durable-before-an-fsync-s-no.patch"
        "0009-f2fs-have-sync-flush-the-devices-after-a-checkpoint-.patch"
        "0010-f2fs-have-fsync-flush-all-devices.patch"
        "0011-f2fs-have-fsyncs-of-one-file-take-turns.patch";
};
